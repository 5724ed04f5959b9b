"""Whole batches to their leaders: in order, without duplicates, several requests in flight.  The blocking driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from ottla.client.producing.produce_machine import ProduceMachine, ProducerIdentity
from ottla.client.producing.produce_requests import ACKS_NONE, BatchResult, produce_body, read_answers
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import VERSION_MAX, Connection
from ottla.client.wire.connection_pool import LeaderConnection
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, error_code_of
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import Readable
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

# The longest wait: then it checks for expired batches.
STEP_MS: Final = 1_000
# The first version with every codec (KIP-110).
_VERSION_MIN: Final = 7
# The first version whose transactional batches add their partitions to the transaction (KIP-890).
_IMPLICIT_FROM: Final = 12


class RawProducer:
    """Sends built batches (`records.builder`) and returns the result of each, once.

    Batches of one partition are stored in the order of `send`, retries included, when the producer is idempotent.
    Without idempotence a batch whose outcome is unknown is not sent again.

    `identity`: of a producer that has ended.  Its first batch of each partition, sent again with the same records, is
    stored once, as long as the leaders remember the producer (`producer.id.expiration.ms`).

    `split`: a batch of several records that is too large for its topic or for a segment is sent as what it makes of it,
    in its place; each part has its own result, with the tag of the whole.

    with RawProducer(cluster) as producer:
        producer.send(TopicPartition("clicks", 0), build_batch(records))
        for result in producer.flush(): ...
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions | None = None,
        *,
        identity: ProducerIdentity | None = None,
        split: Callable[[TopicPartition, bytearray], Sequence[bytearray]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options or ProducerOptions()
        self._request_ms = cluster.options.request_timeout_ms
        self._machine = ProduceMachine(self._options, cluster.retrying, self._request_ms, split, identity)
        self._pool = cluster.new_pool()
        self._look_ups = cluster.look_ups
        # Connections that have a request in flight, or had one.
        self._leaders: dict[int, LeaderConnection] = {}
        # Those that are being opened, and that a batch waits for.
        self._opening: list[Connection] = []
        # Of a transactional producer only the protocol of the transaction decides.
        is_transactional = self._options.transactional_id is not None
        self._version_min = _VERSION_MIN
        self._version_max = _IMPLICIT_FROM - 1 if is_transactional else VERSION_MAX

    def __enter__(self) -> RawProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections.  Batches that `flush` has not settled may be stored or not."""
        self._leaders.clear()
        self._opening.clear()
        self._pool.close()

    @property
    def identity(self) -> ProducerIdentity:
        """The identity that its batches have; NO_IDENTITY before `identify`, and of one that is not idempotent."""
        return self._machine.identity

    def identify(self, deadline: Deadline | None = None) -> ProducerIdentity:
        """The identity that its batches have; the cluster assigns it at the first call, within `call_timeout_ms`."""
        if self._machine.identity.producer_id < 0:
            limit = self._cluster.retrying.deadline()
            self._machine.identify(self._new_identity(deadline.at_most(limit.remaining_ms) if deadline else limit))
        return self._machine.identity

    def begin(self, identity: ProducerIdentity, *, is_implicit: bool) -> None:
        """The batches from now on are of a transaction with this identity; everything before is settled.

        `is_implicit`: leaders add their partitions to the transaction.
        """
        self._machine.begin(identity)
        self._version_min, self._version_max = (
            (_IMPLICIT_FROM, VERSION_MAX) if is_implicit else (_VERSION_MIN, _IMPLICIT_FROM - 1)
        )

    def end(self, reason: OttlaError) -> None:
        """The transaction is over: nothing is sent, or sent again; what is in flight is settled by its answers."""
        self._machine.end(reason)

    @property
    def pending_count(self) -> int:
        """The count of unsettled batches."""
        return self._machine.pending_count

    @property
    def has_room(self) -> bool:
        """Whether the next `send` does not block."""
        return self._machine.buffered_bytes < self._options.buffer_bytes_max

    def send(
        self, partition: TopicPartition, batch: bytearray, tag: object = None, *, give_up: Deadline | None = None
    ) -> None:
        """Queue one whole batch; it belongs to the producer until its result is returned.

        `give_up` is `delivery_timeout_ms` from now, unless some of that is spent already.  Blocks while
        `buffer_bytes_max` is unacknowledged.  Raises CorruptBatch for invalid bytes, ProducerStopped.
        """
        if self._machine.stopped is not None:
            raise self._machine.stopped
        give_up = give_up or self._cluster.retrying.deadline(self._options.delivery_timeout_ms)
        if self._options.is_idempotent:
            self.identify(give_up)
        self._machine.add(partition, batch, tag, give_up)
        self._dispatch()
        while self._machine.buffered_bytes > self._options.buffer_bytes_max:
            self._step(self._cluster.retrying.deadline(STEP_MS))

    def resume(self, partition: TopicPartition) -> None:
        """A partition that `halts_on_refusal` has halted takes batches again; everything of it must be settled."""
        self._machine.resume(partition)

    @property
    def is_stopped(self) -> bool:
        """Whether it has stopped taking batches, and settled everything: see ProducerStopped."""
        return self._machine.stopped is not None

    def turn(self, timeout_ms: float) -> list[BatchResult]:
        """Send what can be sent, wait once, for at most `timeout_ms` or until the cluster's `wait` is woken; the
        results so far.  For a caller that has more to do than to wait for them.

        Some have a result before they are sent: their topic is gone.  Then it does not wait.
        """
        if self._machine.pending_count:
            self._step(self._cluster.retrying.deadline(0 if self._machine.results else timeout_ms))
        return self._machine.take_results()

    def poll(self, timeout_ms: float = 0) -> list[BatchResult]:
        """The results so far, or the first to arrive within `timeout_ms`."""
        deadline = self._cluster.retrying.deadline(timeout_ms)
        if self._machine.pending_count:
            self._step(deadline.at_most(0 if self._machine.results else STEP_MS))
        while not self._machine.results and self._machine.pending_count and not deadline.has_passed:
            self._step(deadline.at_most(STEP_MS))
        return self._machine.take_results()

    def flush(self, timeout_ms: float | None = None) -> list[BatchResult]:
        """Wait until every batch is settled, at most `timeout_ms`; returns the results that `poll` has not returned.

        Without a time-out it still ends: each batch expires after `delivery_timeout_ms`, and that is its result.
        """
        until = None if timeout_ms is None else self._cluster.retrying.deadline(timeout_ms)
        while self._machine.pending_count and not (until is not None and until.has_passed):
            step_ms = STEP_MS if until is None else min(until.remaining_ms, STEP_MS)
            self._step(self._cluster.retrying.deadline(step_ms))
        return self._machine.take_results()

    def _new_identity(self, deadline: Deadline) -> ProducerIdentity:
        request = InitProducerIdRequest(transaction_timeout_ms=self._request_ms)

        def attempt(deadline: Deadline) -> InitProducerIdResponse:
            connection = self._cluster.connect_any(deadline)
            answer = connection.call(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, deadline)
            if answer.error_code:
                raise BrokerRefused(error_code_of(answer.error_code), "producer id")
            return answer

        answer = self._cluster.retrying.run("INIT_PRODUCER_ID", attempt, deadline)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _step(self, deadline: Deadline) -> None:
        """Expire old batches, send what can be sent, wait for answers."""
        known_count = len(self._machine.results)
        self._machine.on_time()
        self._dispatch()
        if self._machine.pending_count:
            has_new = len(self._machine.results) > known_count
            self._wait(0 if has_new else self._machine.next_try_ms(deadline.remaining_ms))
            self._dispatch()

    def _dispatch(self) -> None:
        """Send requests to every leader that has room for one more in flight, while there are batches.

        Nothing is waited for: leaders that must be looked up and connections that are opened are polled.
        """
        self._look_ups.poll()
        while True:
            self._follow_events()
            self._opening = []
            groups: dict[int, list[TopicPartition]] = {}
            for partition in self._machine.sendable():
                leader_id = self._find_leader(partition)
                if leader_id is not None:
                    groups.setdefault(leader_id, []).append(partition)
            sent_count = sum(self._send_request(leader_id, group) for leader_id, group in groups.items())
            self._follow_events()
            if not self._look_ups.poll() and not sent_count:
                return

    def _follow_events(self) -> None:
        """Do what the machine's events demand of metadata and connections."""
        if self._machine.has_stale_topics:
            self._cluster.forget(self._machine.take_stale_topics())
        if self._machine.stopped is not None:
            self.close()

    def _find_leader(self, partition: TopicPartition) -> int | None:
        """The current leader; None while it is looked up, and when it cannot be found: then it is retried later."""
        create = self._options.allow_auto_topic_creation
        try:
            found = self._look_ups.leader(partition, allow_auto_topic_creation=create)
        except ClientError as error:
            self._machine.cannot_send(partition, error)
            self._follow_events()
            return None
        return None if found is None else found.leader_id

    def _send_request(self, leader_id: int, partitions: Sequence[TopicPartition]) -> bool:
        """Send the next request of these partitions; False when none can be sent now."""
        if not self._machine.has_room(leader_id):
            return False
        try:
            leader = self._connect(leader_id)
        except ClientError as error:
            for partition in partitions:
                self._machine.cannot_send(partition, error)
            return False
        if leader is None or leader.connection.is_sending:
            return False
        flight = self._machine.take_request(leader_id, partitions)
        if flight is None:
            return False
        version = leader.connection.version_of(ApiKey.PRODUCE, at_least=self._version_min, at_most=self._version_max)
        body = produce_body(
            version, self._options.acks, self._request_ms, flight.batches, self._options.transactional_id
        )
        has_answer = self._options.acks != ACKS_NONE
        try:
            # Without answers nothing would show that a part of it was lost.
            waits = not has_answer
            leader.connection.send(
                ApiKey.PRODUCE, version, body, flight.deadline, expects_response=has_answer, waits=waits
            )
        except ClientError as error:
            self._lose(leader, error)
        else:
            if not has_answer:
                self._machine.on_sent(leader_id)
        return True

    def _connect(self, leader_id: int) -> LeaderConnection | None:
        """The connection to this broker, None while it is opened; another one may be opened while no request is in
        flight to it."""
        known = self._leaders.get(leader_id)
        if known is None or self._machine.oldest(leader_id) is None:
            connection = self._cluster.poll_broker(leader_id, self._pool)
            if connection is None:
                opening = self._cluster.opening(leader_id, self._pool)
                if opening is not None:
                    self._opening.append(opening)
                return None
            connection.version_of(ApiKey.PRODUCE, at_least=self._version_min, at_most=self._version_max)
            known = self._leaders[leader_id] = LeaderConnection(leader_id, connection)
        return known

    def _wait(self, timeout_ms: float) -> None:
        """Take the first answers that arrive within `timeout_ms`; also until a connection can be opened further."""
        busy: dict[int, LeaderConnection] = {}
        for leader in self._leaders.values():
            oldest = self._machine.oldest(leader.leader_id)
            if oldest is not None:
                busy[leader.leader_id] = leader
                timeout_ms = min(timeout_ms, oldest.deadline.remaining_ms)
        looking = self._look_ups.streams()
        if not busy and not looking and not self._opening:
            if timeout_ms > 0:
                self._cluster.retrying.sleep_ms(timeout_ms)
            return
        if looking or self._opening:
            steps_ms = [each.opening_wait_ms for each in self._opening]
            timeout_ms = min([self._look_ups.wait_ms(timeout_ms), *steps_ms])
        streams: list[Readable] = [*busy.values(), *self._opening, *looking]
        ready = self._cluster.wait(streams, timeout_ms)
        for leader in busy.values():
            if leader in ready:
                self._receive(leader)
        for leader in busy.values():
            oldest = self._machine.oldest(leader.leader_id)
            if oldest is not None and oldest.deadline.has_passed:
                self._lose(leader, CallTimedOut(f"{leader.connection.address} did not answer a produce in time"))

    def _receive(self, leader: LeaderConnection) -> None:
        while self._machine.oldest(leader.leader_id) is not None:
            try:
                leader.connection.continue_sending()
                received = leader.connection.try_receive()
                if received is None:
                    return
                sent, body = received
                answers = read_answers(leader.connection, sent.version, body)
            except (ClientError, WireError) as error:
                self._lose(leader, error)
                return
            self._machine.on_answer(leader.leader_id, answers)
            if not leader.has_buffered():
                return

    def _lose(self, leader: LeaderConnection, error: ClientError | WireError) -> None:
        """The connection has failed: its requests will not be answered."""
        leader.connection.close(error)
        self._machine.on_lost(leader.leader_id, error)
