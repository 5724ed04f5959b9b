"""The membership of a consumer in a Kafka group, with a broker of any kind: the thread around `KafkaGroupMember`."""

from __future__ import annotations

import random
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from ottla.client.groups.group_types import GroupMetadata
from ottla.client.groups.groups import Coordinators
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.member import KafkaGroupMember
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import Ask
from ottla.client.membership.membership import Event, OnEvents
from ottla.client.wire.client_log import GROUP
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.destination.destination import Bootstrap
from ottla.client.wire.errors import CallTimedOut, ClientError, ConnectionLost, UnsupportedByBroker
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import Readable
from ottla.client.wire.waiting import WARN_AGAIN_MS, Waiting, warns_on
from ottla.client.wire.wake_up import WakeUp
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.runtime.clock import Clock

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
    """The connection of a member to its coordinator: one request at a time, and a wait that other threads can end.

    Owns `cluster`.  Every error is a ClientError; after one the connection is reopened.
    """

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

    def drop(self, reason: ClientError | None = None) -> None:
        """Look the coordinator up, and connect again, before the next request; `reason`: why the connection is lost, if
        it is.
        """
        self._in_flight = None
        if self._connection is not None:
            self._connection.close(reason)
            self._connection = None
        self._coordinators.forget(self._group_id)

    def close(self) -> None:
        self.drop()
        self._cluster.close()


_SESSION_ID_BITS: Final = 63
# A broker that takes no connection must not keep the others from being asked, nor the thread from leaving.
_CONNECT_TIMEOUT_MS: Final = 2_000
_LOOK_UP_REQUEST_TIMEOUT_MS: Final = 3_000
_POLL_MS_MIN: Final = 1
_POLL_MS_MAX: Final = 60_000

_Command: TypeAlias = Callable[[KafkaGroupMember, int], list[Event]]


def kafka_group_membership(
    bootstrap: Bootstrap,
    group_id: str,
    options: KafkaGroupOptions | None = None,
    client_options: ClientOptions | None = None,
    *,
    clock: Clock | None = None,
) -> KafkaGroupMembership:
    """A member-to-be of the group; it connects after `join`.  Raises BadAddress."""
    given = client_options or ClientOptions()
    impatient = replace(
        given,
        connect_timeout_ms=min(given.connect_timeout_ms, _CONNECT_TIMEOUT_MS),
        request_timeout_ms=min(given.request_timeout_ms, _LOOK_UP_REQUEST_TIMEOUT_MS),
    )
    waiting = Waiting(warns_on(GROUP, f"member of group {group_id}"), clock, again_after_ms=WARN_AGAIN_MS)
    cluster = Cluster(bootstrap, impatient, clock=clock, dial=waiting.dial, on_wait=waiting.on_wait)
    return KafkaGroupMembership(cluster, group_id, options or KafkaGroupOptions())


class KafkaGroupMembership:
    """See `Membership`.  Its thread owns `cluster`; other threads leave commands, and wake it."""

    def __init__(self, cluster: Cluster, group_id: str, options: KafkaGroupOptions) -> None:
        self._cluster: Final = cluster
        self._group_id: Final = group_id
        self._options: Final = options
        self._link: Final = GroupLink(cluster, group_id)
        self._wake_up: Final = WakeUp()
        self._commands: Final[deque[_Command]] = deque()
        self._until_ms = 0
        self._group_metadata: GroupMetadata | None = None
        self._lease_term = 0
        self._is_closed = False
        self._on_events: OnEvents | None = None
        self._thread: threading.Thread | None = None

    @property
    def hand_out_until_ms(self) -> int:
        return self._until_ms

    def group_metadata(self) -> GroupMetadata | None:
        return self._group_metadata

    @property
    def meter(self) -> RequestMeter:
        """Of the requests to coordinators."""
        return self._cluster.meter

    @property
    def lease_term(self) -> int:
        """Rises with each lease that follows a lapse: while it stays equal, the lease was renewed in time.

        Read it after `hand_out_until_ms`: it rises before that does.
        """
        return self._lease_term

    def join(self, subscription: Subscription, on_events: OnEvents) -> None:
        assert self._thread is None, "a membership is joined once"
        chance = random.Random()
        member = KafkaGroupMember(
            self._group_id,
            f"{self._cluster.options.client_id}-{uuid.uuid4()}",
            chance.getrandbits(_SESSION_ID_BITS),
            subscription,
            self._options,
            chance,
        )
        self._on_events = on_events
        name = f"ottla-group-{self._group_id}"
        self._thread = threading.Thread(target=self._run, args=(member,), name=name, daemon=True)
        self._thread.start()

    def subscribe(self, subscription: Subscription) -> None:
        """See `ChangingMembership`.  What the user assigns cannot be changed into what the group does, or back."""
        self._tell(lambda member, now_ms: member.subscribe(subscription, now_ms))

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        rows = list(offsets)
        self._tell(lambda member, now_ms: member.commit(rows))

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        self._tell(lambda member, now_ms: member.on_stopped(partition, claim, offset, now_ms))

    def leave(self) -> None:
        self._tell(lambda member, now_ms: member.leave(now_ms))

    def close(self) -> None:
        self._is_closed = True
        self._wake_up.ring()
        if self._thread is None:
            self._wake_up.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def _tell(self, command: _Command) -> None:
        self._commands.append(command)
        self._wake_up.ring()

    def _run(self, member: KafkaGroupMember) -> None:
        try:
            while not self._is_closed and not member.is_over:
                self._step(member)
            self._deliver(member, member.abandon())
        except Exception as error:  # noqa: BLE001 (any error must reach the user)
            cause = error if isinstance(error, OttlaError) else OttlaError(f"the member of the group failed: {error!r}")
            if cause is not error:
                cause.__cause__ = error
            self._deliver(member, member.fail(cause))
        finally:
            self._until_ms = 0
            self._link.close()
            self._wake_up.close()

    def _step(self, member: KafkaGroupMember) -> None:
        """What other threads want; the request that is due; a wait for what comes first."""
        while self._commands:
            self._deliver(member, self._commands.popleft()(member, self._now_ms()))
        in_flight = self._link.in_flight
        if in_flight is not None and member.abandons(in_flight):
            self._on_error(member, in_flight, ConnectionLost("no caller waits for the answer any more"))
        if self._link.in_flight is None:
            ask = member.next_ask(self._now_ms())
            if ask is not None and not self._ask(member, ask):
                return
        if member.is_over:
            return
        self._wait(member)

    def _ask(self, member: KafkaGroupMember, ask: Ask) -> bool:
        """Whether the request is under way."""
        try:
            coordinator_id = self._link.open()
        except ClientError as error:
            self._on_error(member, ask, error)
            return False
        if coordinator_id is not None:
            offers = self._link.offers(ApiKey.CONSUMER_GROUP_HEARTBEAT)
            self._deliver(member, member.on_connected(coordinator_id, offers_consumer=offers))
        try:
            self._link.send(ask)
        except UnsupportedByBroker as error:
            self._deliver(member, member.on_unsupported(ask, error, self._now_ms()))
            return False
        except ClientError as error:
            self._on_error(member, ask, error)
            return False
        return True

    def _wait(self, member: KafkaGroupMember) -> None:
        in_flight = self._link.in_flight
        wait_ms = _POLL_MS_MAX if in_flight is not None else member.due_ms - self._now_ms()
        try:
            answer = self._link.wait(self._wake_up, min(max(wait_ms, _POLL_MS_MIN), _POLL_MS_MAX))
        except ClientError as error:
            assert in_flight is not None
            self._on_error(member, in_flight, error)
            return
        if answer is not None:
            events = member.on_answer(answer.ask, answer.message, answer.sent_ms, self._now_ms())
            if member.take_moved():
                self._link.drop()
            self._deliver(member, events)

    def _on_error(self, member: KafkaGroupMember, ask: Ask, error: ClientError) -> None:
        is_abandoned = member.abandons(ask)
        if error.is_retriable and not is_abandoned:
            self._cluster.retrying.on_wait(error)
        # A connection whose answer is not waited for any more is closed by this side.
        self._link.drop(None if is_abandoned else error)
        self._deliver(member, member.on_no_answer(ask, error, self._now_ms()))

    def _deliver(self, member: KafkaGroupMember, events: Sequence[Event]) -> None:
        """The lease first: what was lost must not be handed out while its end is on its way."""
        until_ms = member.hand_out_until_ms
        if until_ms > self._until_ms <= self._now_ms():
            self._lease_term += 1
        self._until_ms = until_ms
        # Before the events, too: with a later epoch than that of a start its commits would be refused.
        self._group_metadata = member.group_metadata
        if events:
            assert self._on_events is not None
            self._on_events(events)

    def _now_ms(self) -> int:
        return self._cluster.clock.boottime_ms()
