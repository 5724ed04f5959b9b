"""A transactional producer as a script: each step yields a request or a pause, and continues with the answer.

It repeats what was not answered on its next connection; the first request may still arrive.  After an error that ends
its transaction it initializes again, with its identity or as a new producer; when another one took its id over, it
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.transactions.commands import AddPartitions, EndTransaction, InitProducer, ProducerReply
from ottla.transactions.transaction import EPOCH_MAX
from tests.seeds.search import Violation
from tests.transactions_simulation.checks import Attempted, Value, input_of
from tests.transactions_simulation.offsets_partition import (
    OFFSETS,
    SHARED,
    CommitInTransaction,
    Fetched,
    OffsetsPartition,
)
from tests.transactions_simulation.partition import Produce

if TYPE_CHECKING:
    from tests.transactions_simulation.simulation import Simulation

REQUEST_MS: Final = 500
LATE_MS: Final = 3_000
ATTEMPTS_MAX: Final = 12
RETRY_MS: Final = 15
# Between two transactions, at most.
PAUSE_MS: Final = 60.0
RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

Deliver = Callable[[Callable[[Any], None]], None]


class Request(NamedTuple):
    """One that arrives at most `late_ms` later when it is lost; 0: never."""

    deliver: Deliver
    late_ms: float


# A request, or a pause in ms.
Step = Deliver | Request | float
Script = Generator[Step, Any, Any]


class SimulatedProducer:
    def __init__(self, simulation: Simulation, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.is_replaced = False
        self.commits_count = 0
        self.initialized_ms: float | None = None
        self.started_ms = simulation.timeline.now
        # When it received its identity, and when its last init started.
        self._renewed_ms = 0.0
        self._requested_ms = 0.0
        self._simulation = simulation
        self._connection = simulation.next_connection()
        self._identity = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._steps_count = 0
        self._script = self._run()
        simulation.timeline.after(0, self._continue, None)

    def _continue(self, answer: Any) -> None:
        self._steps_count += 1
        step = self._sent(answer)
        if step is None:
            return
        number = self._steps_count
        if isinstance(step, float):
            self._simulation.timeline.after(step, self._continue_from, number, None)
            return
        deliver, late_ms = step if isinstance(step, Request) else (step, LATE_MS)
        self._simulation.send(deliver, lambda found: self._continue_from(number, found), late_ms=late_ms)
        self._simulation.timeline.after(REQUEST_MS, self._continue_from, number, None)

    def stop(self) -> None:
        """The process ends."""
        self._steps_count = -1

    def _continue_from(self, number: int, answer: Any) -> None:
        if number == self._steps_count:
            self._continue(answer)

    def _sent(self, answer: Any) -> Step | None:
        try:
            return self._script.send(answer)
        except StopIteration:
            return None

    def _run(self) -> Script:
        simulation = self._simulation
        while True:
            self._requested_ms = simulation.timeline.now
            reply = yield from self._retried(
                lambda: InitProducer(self.transactional_id, simulation.plan.timeout_ms, *self._identity)
            )
            if reply is None:
                if self.is_replaced:
                    return
                self._identity = (-1, -1)
            elif self._continued_after_its_successor(reply):
                raise Violation(f"T9: {self.transactional_id} is given to a producer that was replaced")
            elif reply.error is not ErrorCode.NONE:
                if self.is_replaced:
                    return
                self._identity = (-1, -1)
            else:
                self._renew(reply)
                while (yield from self._transaction()):
                    pass
                if not self.is_replaced and simulation.chance.random() < 0.3:
                    self._identity = (-1, -1)
            yield RETRY_MS * 1.0

    def _continued_after_its_successor(self, reply: ProducerReply) -> bool:
        successor = self._simulation.producers[self.transactional_id]
        # It may itself have taken the id over later, by an init without an identity that was under way.
        was_before = self._renewed_ms < successor.started_ms
        is_late = successor.initialized_ms is not None and successor.initialized_ms < self._requested_ms and was_before
        return self.is_replaced and is_late and self._identity[0] >= 0 and reply.error is ErrorCode.NONE

    def _renew(self, reply: ProducerReply) -> None:
        if self.initialized_ms is None:
            self.initialized_ms = self._simulation.timeline.now
        identity = (reply.producer_id, reply.producer_epoch)
        if reply.producer_epoch > EPOCH_MAX:
            raise Violation(f"T9: {self.transactional_id} is given the epoch of a marker")
        if identity != self._identity:
            self._sequences = {}
        self._identity = identity
        self._renewed_ms = self._simulation.timeline.now

    def _transaction(self) -> Script:
        """Whether the producer may begin the next one."""
        simulation = self._simulation
        attempted = simulation.checks.begin(self.transactional_id, self._identity[0])
        yield simulation.chance.random() * PAUSE_MS
        is_complete = yield from self._process(attempted)
        attempted.requested_commit = is_complete and simulation.chance.random() < 0.7
        producer_id, epoch = self._identity
        reply = yield from self._retried(
            lambda: EndTransaction(
                self.transactional_id,
                producer_id,
                epoch,
                attempted.requested_commit,
                simulation.plan.advances_epoch,
                connection=self._connection,
            )
        )
        if reply is None or reply.error is not ErrorCode.NONE:
            attempted.is_refused = reply is not None and not simulation.may_be_fenced
            return False
        simulation.trace("transaction %d ends: commits %s", attempted.number, attempted.requested_commit)
        attempted.answered = attempted.requested_commit
        self.commits_count += attempted.requested_commit
        if simulation.plan.advances_epoch:
            self._renew(reply)
        # Without another epoch the sequences of what was not acknowledged are not known.
        return is_complete or simulation.plan.advances_epoch

    def _process(self, attempted: Attempted) -> Script:
        """Read the next input, if there are any, write records, and commit the offset after the input."""
        offsets = self._simulation.offsets
        if offsets is None:
            return (yield from self._produce_all(attempted))
        # After the init, which has ended the transactions of earlier producers.
        partition = input_of(self.transactional_id)
        fetched = yield from self._retried_request(lambda answer: offsets.fetch(partition, answer))
        if not isinstance(fetched, Fetched):
            return False
        attempted.input = fetched.offset
        return (yield from self._produce_all(attempted)) and (yield from self._commit_offsets(attempted, offsets))

    def _commit_offsets(self, attempted: Attempted, offsets: OffsetsPartition) -> Script:
        advances_epoch = self._simulation.plan.advances_epoch
        if not advances_epoch and (yield from self._add(OFFSETS)) is not ErrorCode.NONE:
            return False
        assert attempted.input is not None
        request = CommitInTransaction(
            self.transactional_id,
            *self._identity,
            attempted.number,
            {input_of(self.transactional_id): attempted.input + 1, SHARED: attempted.number},
            advances_epoch,
        )
        # A commit of offsets differs from one of the last transaction by its epoch only: where that stays, a request
        # that was lost with its connection must not arrive later.
        error = yield from self._retried_request(
            lambda answer: offsets.commit(request, answer), late_ms=LATE_MS if advances_epoch else 0
        )
        return error is ErrorCode.NONE

    def _produce_all(self, attempted: Attempted) -> Script:
        simulation = self._simulation
        advances_epoch = simulation.plan.advances_epoch
        producer_id, epoch = self._identity
        added: set[TopicPartition] = set()
        for number in range(simulation.chance.choice((1, 2, 3, 5))):
            partition = simulation.chance.choice(simulation.data_partitions)
            if not advances_epoch and partition not in added:
                error = yield from self._add(partition)
                if error is not ErrorCode.NONE:
                    return False
                added.add(partition)
            sequence = self._sequences.get(partition, 0)
            value = Value(attempted.number, number)
            request = Produce(self.transactional_id, producer_id, epoch, sequence, value, advances_epoch)
            error = yield from self._retried_produce(partition, request)
            if error is not ErrorCode.NONE:
                return False
            attempted.acknowledged.append((partition, value))
            self._sequences[partition] = sequence + 1
            if simulation.stalls():
                yield simulation.plan.timeout_ms * (0.5 + simulation.chance.random())
        return True

    def _add(self, partition: TopicPartition) -> Script:
        return (
            yield from self._retried(
                lambda: AddPartitions(
                    self.transactional_id, *self._identity, frozenset({partition}), connection=self._connection
                )
            )
        )

    def _retried(self, command: Callable[[], Any]) -> Script:
        """The answer, or None when there is none after many attempts."""
        for _ in range(ATTEMPTS_MAX):
            sent = command()
            reply = yield self._simulation.to_coordinator(sent)
            if reply is None:
                self._connection = self._simulation.next_connection()
                continue
            error = reply.error if isinstance(reply, ProducerReply) else reply
            if error not in RETRIED:
                return reply
            yield RETRY_MS * 1.0
        return None

    def _retried_request(self, deliver: Deliver, *, late_ms: float = LATE_MS) -> Script:
        """The answer, None when there is none after many attempts."""
        for _ in range(ATTEMPTS_MAX):
            reply = yield Request(deliver, late_ms)
            if reply is not None and reply not in RETRIED:
                return reply
            yield RETRY_MS * 1.0
        return None

    def _retried_produce(self, partition: TopicPartition, request: Produce) -> Script:
        for _ in range(self._simulation.chance.choice((1, ATTEMPTS_MAX, ATTEMPTS_MAX))):
            error = yield lambda answer: self._simulation.partitions[partition].produce(request, answer)
            if error is not None and error not in RETRIED:
                return error
            yield RETRY_MS * 1.0
        return None
