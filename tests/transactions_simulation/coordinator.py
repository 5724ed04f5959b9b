"""The partition of `__transaction_state`: the product's shard in each leader epoch, and the shell around it.

A replaced coordinator refuses commands, since its lease is over, but may not know for a while that it is replaced: what
it appended last never becomes stable, and its markers are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Moment
from ottla.transactions.commands import IdCommand, refusal
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.shard import TransactionShard
from ottla.transactions.transaction_records import TransactionRecord

if TYPE_CHECKING:
    from tests.transactions_simulation.simulation import Simulation

LOAD_MS = 60
TICK_MS = 20
PRODUCER_ID_MS = 20
MARKER_TIMEOUT_MS = 150
RETRY_MS = 20
LATE_MARKER_MS = 600
SUSPENDED_MS = 150
START_WALL_MS = 1_700_000_000_000


class Serving:
    """One coordinator in one leader epoch: its log as it sees it, its shard, its markers."""

    def __init__(self, partition: CoordinatorPartition, records: list[TransactionRecord], epoch: int) -> None:
        self.records = records
        self.epoch = epoch
        self.is_loaded = False
        self.is_over = False
        self.is_suspended = False
        self.stable_end = partition.high_watermark
        # Markers that are being written.
        self._sending: set[tuple[str, int, int, TopicPartition]] = set()
        self._partition = partition
        self._simulation = partition.simulation
        self.shard = TransactionShard(self, TransactionSettings(), self, epoch)

    # `TransactionLog`.

    def append(self, records: Sequence[TransactionRecord], now_ms: int) -> int:
        if self._simulation.draws(self._simulation.plan.refused_share):
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")
        self.records += records
        self._partition.replicate(self)
        return len(self.records)

    # `TransactionServices`.

    def request_producer_id(self, transactional_id: str) -> None:
        simulation = self._simulation
        found = None if simulation.draws(0.1) else simulation.new_producer_id()
        delay_ms = simulation.chance.random() * PRODUCER_ID_MS
        simulation.timeline.after(delay_ms, self._on_producer_id, transactional_id, found)

    def _on_producer_id(self, transactional_id: str, producer_id: int | None) -> None:
        if not self.is_over:
            self.shard.on_producer_id(transactional_id, producer_id, self._partition.moment)

    def write_markers(self, markers: EndMarkers) -> None:
        self._simulation.checks.on_decision(markers, self)
        for partition in sorted(markers.partitions):
            key = (markers.transactional_id, markers.producer_id, markers.producer_epoch, partition)
            if key not in self._sending:
                self._sending.add(key)
                self._send_marker(markers, partition)

    def _send_marker(self, markers: EndMarkers, partition: TopicPartition) -> None:
        """Send until it is answered for good.  `answers` makes the attempt's outcome known once."""
        if self.is_over:
            return
        simulation = self._simulation
        answers: list[ErrorCode] = []

        def on_answer(error: ErrorCode) -> None:
            if answers or self.is_over:
                return
            answers.append(error)
            if error is ErrorCode.NONE:
                self._sending.remove((markers.transactional_id, markers.producer_id, markers.producer_epoch, partition))
                self.shard.on_marker_written(
                    markers.transactional_id,
                    (markers.producer_id, markers.producer_epoch),
                    partition,
                    self._partition.moment,
                )
            elif self._is_final(error):
                simulation.trace("markers of %s stop: %s", markers.transactional_id, error.name)
            else:
                simulation.timeline.after(RETRY_MS, self._send_marker, markers, partition)

        def on_timeout() -> None:
            on_answer(ErrorCode.REQUEST_TIMED_OUT)

        # Where the epoch stays, a marker that arrives late looks like that of the next transaction: its sender has one
        # request in flight on a connection, and what was lost with a connection does not arrive.
        simulation.send(
            lambda answer: simulation.partitions[partition].write_marker(markers, answer),
            on_answer,
            late_ms=LATE_MARKER_MS if markers.advances_epoch else 0,
        )
        simulation.timeline.after(MARKER_TIMEOUT_MS, on_timeout)

    def _is_final(self, error: ErrorCode) -> bool:
        return error in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}

    def stop(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.shard.fail_all(ErrorCode.NOT_COORDINATOR)


class CoordinatorPartition:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.high_watermark = 0
        self.zombie: Serving | None = None
        self.serving = Serving(self, [], 0)
        self._load(self.serving)
        self._tick()

    @property
    def moment(self) -> Moment:
        now_ms = int(self.simulation.timeline.now)
        return Moment(START_WALL_MS + now_ms, now_ms)

    def submit(self, command: IdCommand, reply: Callable[[Any], None], addressed: Serving | None = None) -> None:
        """To the coordinator, or to the one that was replaced and does not know it.

        `addressed`: the request does not arrive at a coordinator that came after this one, on another broker.
        """
        serving = self.serving
        if addressed is not None and serving is not addressed:
            reply(refusal(command, ErrorCode.NOT_COORDINATOR))
            return
        if self.zombie is not None and not self.zombie.is_over and self.simulation.chance.random() < 0.5:
            if not self.answers_without_lease():
                reply(refusal(command, ErrorCode.NOT_COORDINATOR))
                return
            serving = self.zombie
        if not self.may_serve(serving):
            reply(refusal(command, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        serving.shard.submit(command, reply, self.moment)

    def answers_without_lease(self) -> bool:
        """A broker is replaced after its lease only, and refuses commands from then on."""
        return False

    def may_serve(self, serving: Serving) -> bool:
        return serving.is_loaded

    def replicate(self, serving: Serving) -> None:
        delay_ms = self.simulation.chance.random() * self.simulation.plan.replication_ms
        self.simulation.timeline.after(delay_ms, self._replicated, serving, len(serving.records))

    def _replicated(self, serving: Serving, end: int) -> None:
        if serving is not self.serving:
            return
        self.high_watermark = max(self.high_watermark, end)
        serving.stable_end = self.high_watermark
        self.simulation.checks.on_records_stable(self)
        if serving.is_loaded:
            serving.shard.on_stable(serving.stable_end)

    def move(self) -> None:
        """Another broker leads the partition; what was not replicated may be lost."""
        simulation = self.simulation
        former = self.serving
        end = simulation.chance.randint(self.high_watermark, len(former.records))
        if self.zombie is not None:
            self.zombie.stop()
        self.zombie = former
        self.serving = Serving(self, former.records[:end], former.epoch + 1)
        simulation.trace("coordinator of epoch %d, from record %d", self.serving.epoch, end)
        simulation.timeline.after(simulation.chance.random() * simulation.plan.zombie_ms, former.stop)
        self.replicate(self.serving)
        simulation.timeline.after(simulation.chance.random() * LOAD_MS, self._load, self.serving)

    def _load(self, serving: Serving) -> None:
        if serving is not self.serving or serving.is_over:
            return
        for key, value in self.records_to_load(serving):
            serving.shard.replay(key, value)
        serving.is_loaded = True
        serving.shard.loaded(self.moment, len(serving.records))

    def records_to_load(self, serving: Serving) -> list[TransactionRecord]:
        """All to the end of the log: records above the high watermark will become stable in this epoch."""
        return list(serving.records)

    def suspend(self) -> None:
        serving = self.serving
        if serving.is_loaded and not serving.is_suspended:
            serving.is_suspended = True
            serving.shard.suspend(ErrorCode.NOT_COORDINATOR)
            self.simulation.timeline.after(self.simulation.chance.random() * SUSPENDED_MS, self.resume, serving)

    def resume(self, serving: Serving) -> None:
        if serving.is_suspended and not serving.is_over:
            serving.is_suspended = False
            serving.shard.resume(self.moment)

    def _tick(self) -> None:
        serving = self.serving
        if serving.is_loaded and not serving.is_suspended:
            serving.shard.on_time(self.moment)
        self.simulation.timeline.after(TICK_MS, self._tick)
