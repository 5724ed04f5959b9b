"""Open connections, one for each broker address."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.client.wire.address import Address
from ottla.client.wire.client_log import CONNECTIONS
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.transport import Dial
from ottla.observe.events import named
from ottla.observe.text import safe_line
from ottla.runtime.clock import Clock


class ConnectionPool:
    """A caller that keeps requests in flight has its own pool: a parked fetch would delay every request after it."""

    def __init__(
        self,
        dial: Dial,
        options: ClientOptions,
        clock: Clock,
        memory: ReusedMemory | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self._dial = dial
        self._options = options
        self._clock = clock
        self._memory = memory
        self._meter = meter or RequestMeter()
        self._connections: dict[Address, Connection] = {}
        # Those at which nothing has accepted a connection lately.
        self._unreached: set[Address] = set()
        # Those whose last connection could not be opened, and that was reported.
        self._reported: set[Address] = set()

    def connect(self, address: Address, deadline: Deadline) -> Connection:
        """The connection to this address, a new one when there is no fresh one.

        One that could not be opened before an earlier deadline is kept, and opened further.  It has failed when it is
        closed, or the time of its step has passed: then another one is opened.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.is_fresh:
            if connection is not None:
                self._end(connection)
            connection = self._dialled(address)
        if connection.is_opening:
            self._finish_opening(connection, deadline)
        return connection

    def _finish_opening(self, connection: Connection, deadline: Deadline) -> None:
        try:
            connection.finish_opening(deadline)
        except ClientError as error:
            if not connection.is_opening:
                self._on_open_failed(connection.address, error)
            raise
        self._on_opened(connection)

    def poll(self, address: Address) -> Connection | None:
        """As `connect`, without waiting: None while it is opened.

        The caller waits for the connections of `opening`, at most for their `opening_wait_ms`, and calls again.
        """
        connection = self._connections.get(address)
        if connection is None or not (connection.is_opening or connection.is_fresh):
            if connection is not None:
                self._end(connection)
            connection = self._dialled(address)
        if connection.is_opening:
            try:
                if not connection.continue_opening():
                    return None
            except ClientError as error:
                self._on_open_failed(address, error)
                raise
            self._on_opened(connection)
        return connection

    def opening(self, address: Address) -> Connection | None:
        """The connection to this address that is not open yet, if there is one."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_opening else None

    def _end(self, connection: Connection) -> None:
        """Another one takes the place of this one, which is not fresh."""
        if connection.is_opening:
            self._on_open_failed(connection.address, CallTimedOut(f"{connection.address} did not answer in time"))
        connection.close()

    def _on_open_failed(self, address: Address, error: ClientError) -> None:
        self._meter.on_open_failed()
        self._log_failure(address, error)

    def _log_failure(self, address: Address, error: ClientError) -> None:
        """Once at level INFO until it can be reached: it is tried again and again."""
        level = logging.DEBUG if address in self._reported else logging.INFO
        self._reported.add(address)
        of_system = error.__cause__
        is_known = isinstance(of_system, OSError) and of_system.strerror
        reason = safe_line(str(of_system.strerror) if is_known else str(error))  # type: ignore[union-attr]
        facts = named("connection.failed", broker=address, client_id=self._options.client_id, reason=reason)
        CONNECTIONS.log(level, "broker %s cannot be reached: %s", address, reason, extra=facts)

    def _on_opened(self, connection: Connection) -> None:
        self._meter.on_opened()
        level = logging.INFO if connection.address in self._reported else logging.DEBUG
        self._reported.discard(connection.address)
        facts = named(
            "connection.opened",
            broker=connection.address,
            client_id=self._options.client_id,
            security=self._options.security.protocol,
            round_trip_ms=connection.round_trip_ms,
        )
        CONNECTIONS.log(level, "connected to broker %s", connection.address, extra=facts)

    def _dialled(self, address: Address) -> Connection:
        self._unreached.add(address)
        try:
            connection = Connection.dial(address, self._dial, self._options, self._clock, self._memory, self._meter)
        except ClientError as error:
            self._on_open_failed(address, error)
            raise
        self._unreached.discard(address)
        self._connections[address] = connection
        return connection

    def in_order(self, addresses: Iterable[Address]) -> list[Address]:
        """In which order to try them: an open connection first, then one that is being opened; at the end those to
        brokers whose last connection failed, or of which nothing came.

        A broker that cannot serve closes its connections: another one must get the next request.
        """
        usable = [address for address, each in self._connections.items() if each.is_fresh and not each.is_silent]
        opened = sorted(usable, key=lambda address: self._connections[address].is_opening)
        failed = self._unreached.union(
            address for address, each in self._connections.items() if not each.is_open or each.is_silent
        )
        return list(dict.fromkeys([*opened, *sorted(addresses, key=failed.__contains__)]))

    def connect_any(self, addresses: Iterable[Address], deadline: Deadline) -> Connection:
        """A connection to any of them, as `in_order` has them.

        Raises BrokerUnreachable with the reason of each.
        """
        failures: list[ClientError] = []
        candidates = self.in_order(addresses)
        for address in candidates:
            try:
                return self.connect(address, deadline)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                failures.append(error)
            if deadline.has_passed:
                break
        if len(candidates) == 1:
            raise failures[0]
        raise none_reached(failures)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def none_reached(failures: Sequence[ClientError]) -> BrokerUnreachable:
    """With the reason of each broker."""
    return BrokerUnreachable("no broker can be reached: " + "; ".join(str(failure) for failure in failures))


@dataclass(frozen=True, slots=True)
class LeaderConnection:
    """A connection among those that a client waits on, and whose it is."""

    leader_id: int
    connection: Connection

    @property
    def waits_to_write(self) -> bool:
        return self.connection.waits_to_write

    def fileno(self) -> int:
        return self.connection.fileno()

    def has_buffered(self) -> bool:
        return self.connection.has_buffered()
