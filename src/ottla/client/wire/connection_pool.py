"""Open connections, one for each broker address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.wire.address import Address
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerUnreachable, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.transport import Dial
from ottla.runtime.clock import Clock


class ConnectionPool:
    """A caller that keeps requests in flight has its own pool: a parked fetch would delay every request after it."""

    def __init__(self, dial: Dial, options: ClientOptions, clock: Clock, memory: ReusedMemory | None = None) -> None:
        self._dial = dial
        self._options = options
        self._clock = clock
        self._memory = memory
        self._connections: dict[Address, Connection] = {}

    def connect(self, address: Address, deadline: Deadline) -> Connection:
        """The connection to this address, a new one when there is no fresh one."""
        connection = self._connections.get(address)
        if connection is not None:
            if connection.is_fresh:
                return connection
            connection.close()
        connection = Connection.open(address, self._dial, self._options, self._clock, deadline, self._memory)
        self._connections[address] = connection
        return connection

    def connect_any(self, addresses: Iterable[Address], deadline: Deadline) -> Connection:
        """A connection to any of them: an open one first, one to a broker whose last connection failed at the end.

        A broker that cannot serve closes its connections: another one must get the next request.
        Raises BrokerUnreachable with the reason of each.
        """
        opened = [address for address, connection in self._connections.items() if connection.is_fresh]
        failed = {address for address, connection in self._connections.items() if not connection.is_open}
        failures: list[ClientError] = []
        for address in dict.fromkeys([*opened, *sorted(addresses, key=failed.__contains__)]):
            try:
                return self.connect(address, deadline)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachable("no broker can be reached: " + "; ".join(str(failure) for failure in failures))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


@dataclass(frozen=True, slots=True)
class LeaderConnection:
    """A connection among those that a client waits on, and whose it is."""

    leader_id: int
    connection: Connection

    def fileno(self) -> int:
        return self.connection.fileno()

    def has_buffered(self) -> bool:
        return self.connection.has_buffered()
