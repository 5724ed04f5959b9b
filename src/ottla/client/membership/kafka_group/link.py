"""The connection of a member to its coordinator: one request at a time, and a wait that other threads can end."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.groups.coordinators import Coordinators
from ottla.client.membership.kafka_group.requests import Ask
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import CallTimedOut, ConnectionLost
from ottla.client.wire.transport import Readable
from ottla.client.wire.wake_up import WakeUp
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request

# Looking a coordinator up is the only thing that keeps the thread from what else it is to do.
_LOOK_UP_TIMEOUT_MS: Final = 5_000


class Answer(NamedTuple):
    """`sent_ms` by the clock's `boottime_ms`, before the request was sent."""

    ask: Ask
    message: object
    sent_ms: int


class _InFlight(NamedTuple):
    ask: Ask
    version: int
    sent_ms: int
    deadline: Deadline


class GroupLink:
    """Owns `cluster`.  Every error is a ClientError; after one the connection is reopened."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster: Final = cluster
        self._group_id: Final = group_id
        self._coordinators: Final = Coordinators(cluster)
        self._connection: Connection | None = None
        self._in_flight: _InFlight | None = None

    @property
    def in_flight(self) -> Ask | None:
        return None if self._in_flight is None else self._in_flight.ask

    def open(self) -> int | None:
        """Connect to the coordinator where it is needed; its node id when the connection is a new one."""
        if self._connection is not None and self._connection.is_fresh:
            return None
        deadline = self._cluster.retrying.deadline(_LOOK_UP_TIMEOUT_MS)
        self._connection = self._coordinators.connect(self._group_id, deadline)
        return self._coordinators.of(self._group_id, deadline).node_id

    def offers(self, api: ApiKey) -> bool:
        assert self._connection is not None
        return self._connection.supports(api)

    def send(self, ask: Ask) -> None:
        """Raises UnsupportedByBroker before anything is sent."""
        assert self._connection is not None
        assert self._in_flight is None
        version = self._connection.version_of(ask.api, at_least=ask.at_least)
        body = encode_request(ask.api, version, ask.message(version))
        deadline = self._cluster.retrying.deadline(ask.timeout_ms)
        sent_ms = self._cluster.clock.boottime_ms()
        self._connection.send(ask.api, version, [body], deadline)
        self._in_flight = _InFlight(ask, version, sent_ms, deadline)

    def wait(self, wake_up: WakeUp, timeout_ms: float) -> Answer | None:
        """Until the answer comes, `wake_up` is rung, or the time is over.  Raises when there will be no answer."""
        waited_for: list[Readable] = [wake_up]
        if self._in_flight is not None:
            assert self._connection is not None
            waited_for.append(self._connection)
            timeout_ms = min(timeout_ms, self._in_flight.deadline.remaining_ms)
        ready = self._cluster.wait(waited_for, timeout_ms)
        if wake_up in ready:
            wake_up.clear()
        if self._in_flight is None:
            return None
        if self._connection in ready:
            return self._receive(self._in_flight)
        if self._in_flight.deadline.has_passed:
            raise CallTimedOut(f"the coordinator of group {self._group_id} did not answer in time")
        return None

    def _receive(self, sent: _InFlight) -> Answer:
        assert self._connection is not None
        try:
            _, body = self._connection.receive(sent.deadline)
            message = self._connection.decode(sent.ask.api, sent.version, body, object)
        except WireError as error:
            raise ConnectionLost(f"the coordinator's answer cannot be read: {error}") from error
        self._in_flight = None
        assert isinstance(message, sent.ask.answer)
        return Answer(sent.ask, message, sent.sent_ms)

    def drop(self, *, forgets: bool = True) -> None:
        """Reopen the connection before the next request; `forgets`: after looking up where the coordinator is."""
        self._in_flight = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if forgets:
            self._coordinators.forget(self._group_id)

    def close(self) -> None:
        self.drop()
        self._cluster.close()
