"""The partition of `__consumer_offsets`: the product's group shard over a simulated log that transactions write to.

In each leader epoch the shard is loaded again from what is left of the log.  Each producer commits two offsets in its
transactions: that of its own input, and one that all of them set, and that an operator sets without a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.groups.commands import (
    CommitOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicPartitions,
    TransactionalProducer,
    WriteMarker,
)
from ottla.groups.group_log import GroupRecord
from ottla.groups.replies import CommitReply, FetchReply
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import GroupShard
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX, SharedBytes
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID, OFFSETS_TOPIC, TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.records.header import TRANSACTIONAL_BIT
from ottla.runtime.clock import Moment
from ottla.storage.errors import AppendRefused
from ottla.storage.producers.log_transactions import VerificationGuard
from ottla.transactions.commands import AddPartitions, VerifyPartitions
from tests.transactions_simulation.checks import CommittedRecords, Content
from tests.transactions_simulation.partition import Answer, DataPartition, Entry

if TYPE_CHECKING:
    from ottla.transactions.end_markers import EndMarkers
    from tests.transactions_simulation.simulation import Simulation

GROUP: Final = "group"
OFFSETS: Final = TopicPartition(OFFSETS_TOPIC, 0)
# Of the topic whose offsets are committed: the partition that all producers and the operator set.
SHARED: Final = 0
INPUT_TOPIC: Final = "in"
LOAD_MS: Final = 40
NO_TRANSACTION: Final = -1
LATER_MS: Final = 30


class CommitInTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int
    offsets: dict[int, int]
    # Whether the leader adds the partition to the transaction, or only verifies it.
    adds_partition: bool


class Fetched(NamedTuple):
    """A committed offset, 0 where there is none."""

    offset: int


class ShardLog:
    """`GroupLog` of one leadership."""

    def __init__(self, partition: OffsetsPartition) -> None:
        self._partition = partition
        # The transaction of the command that is being decided.
        self.transaction = NO_TRANSACTION

    @property
    def stable_end(self) -> int:
        return self._partition.high_watermark

    def append(self, records: Sequence[GroupRecord], now_ms: int, producer: TransactionalProducer | None = None) -> int:
        return self._partition.append_records(records, producer, self.transaction)

    def append_marker(self, command: WriteMarker, now_ms: int) -> int | None:
        return self._partition.append_marker(command)

    def later(self, action: Callable[[], None]) -> None:
        """For planted bugs."""
        self._partition.later(action)


class OffsetsPartition(DataPartition):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, OFFSETS)
        self._numbers_count = 0
        self._log = ShardLog(self)
        self.shard = self._new_shard()
        self.shard.loaded(self._moment)
        self.is_loaded = True
        # What was counted from the log, and up to where.
        self._offsets_end = 0
        self._offsets: dict[int, tuple[int, int]] = {}
        self._open_offsets: dict[int, list[tuple[int, CommittedRecords]]] = {}

    @property
    def _moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def _new_shard(self) -> GroupShard:
        settings = GroupSettings()
        return GroupShard(
            self._log,
            settings,
            lambda prefix: prefix,
            TopicsImage.of(),
            lambda group_id: settings.consumer_times,
            SharedBytes(MEMBER_BYTES_MAX),
            SharedBytes(OFFSET_BYTES_MAX),
        )

    def _serves(self, answer: Answer) -> bool:
        if self.is_led and self.is_loaded:
            return True
        answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.is_led else ErrorCode.NOT_COORDINATOR)
        return False

    def fetch(self, partition: int, answer: Callable[[ErrorCode | Fetched], None]) -> None:
        """The stable offset, or UNSTABLE_OFFSET_COMMIT."""

        def on_reply(reply: FetchReply) -> None:
            if reply.error is not ErrorCode.NONE:
                answer(reply.error)
                return
            (found,) = reply.topics[0].partitions
            answer(found.error or Fetched(max(found.offset, 0)))

        if self._serves(answer):
            command = FetchOffsets(GROUP, [TopicPartitions(INPUT_TOPIC, [partition])], requires_stable=True)
            self.shard.submit(command, on_reply, self._moment)

    def commit_plain(self, offset: int) -> None:
        """The operator sets the shared offset, in no transaction."""
        if self.is_led and self.is_loaded:
            self._submit({SHARED: offset}, None, NO_TRANSACTION, lambda error: None)

    def commit(self, request: CommitInTransaction, answer: Answer) -> None:
        if not self._serves(answer):
            return
        try:
            guard = self.transactions.guard(request.producer_id, request.producer_epoch, 0)
        except AppendRefused as error:
            answer(error.error_code)
            return
        if guard is None:
            self._commit(request, None, answer)
            return
        verified_guard: VerificationGuard = guard
        shard = self.shard
        command = (AddPartitions if request.adds_partition else VerifyPartitions)(
            request.transactional_id, request.producer_id, request.producer_epoch, frozenset({self.name})
        )

        def on_verified(error: ErrorCode | None) -> None:
            if self.shard is not shard or not self.is_led:
                answer(ErrorCode.NOT_COORDINATOR)
            elif error is ErrorCode.NONE:
                self._commit(request, verified_guard, answer)
            else:
                self.transactions.verification_refused(verified_guard)
                answer(ErrorCode.COORDINATOR_NOT_AVAILABLE if error is None else error)

        self._simulation.query_coordinator(command, on_verified)

    def _commit(self, request: CommitInTransaction, guard: VerificationGuard | None, answer: Answer) -> None:
        producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
        self._submit(request.offsets, producer, request.transaction, answer)

    def _submit(
        self, offsets: dict[int, int], producer: TransactionalProducer | None, transaction: int, answer: Answer
    ) -> None:
        self._log.transaction = transaction
        committed = [OffsetToCommit(INPUT_TOPIC, partition, offset, -1, "") for partition, offset in offsets.items()]
        command = CommitOffsets(GROUP, "", None, -1, committed, producer=producer)

        def on_reply(reply: CommitReply) -> None:
            answer(next((error for error in reply.errors if error), ErrorCode.NONE))

        self.shard.submit(command, on_reply, self._moment)

    def write_marker(self, markers: EndMarkers, answer: Answer) -> None:
        if not self.is_led or not self.is_loaded:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        marker = EndMarker(markers.commits, markers.coordinator_epoch)
        command = WriteMarker(markers.producer_id, markers.producer_epoch, marker, markers.advances_epoch)

        def on_reply(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._simulation.checks.on_offsets(self)
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.NOT_COORDINATOR else error)

        self.shard.submit(command, on_reply, self._moment)

    def later(self, action: Callable[[], None]) -> None:
        self._simulation.timeline.after(LATER_MS, action)

    def append_records(
        self, records: Sequence[GroupRecord], producer: TransactionalProducer | None, transaction: int
    ) -> int:
        self._numbers_count += 1
        content = CommittedRecords(transaction, self._numbers_count, tuple(records))
        if producer is None:
            self.entries.append(Entry(self._header(NO_PRODUCER_ID, -1, 0, -1), content))
            self._replicate()
            return self.end
        guard = producer.guard
        assert guard is None or isinstance(guard, VerificationGuard)
        header = self._header(producer.producer_id, producer.producer_epoch, TRANSACTIONAL_BIT, 0)
        self.transactions.check(header, guard, has_sequence=False)
        self._append_batch(header, content)
        return self.end

    def append_marker(self, command: WriteMarker) -> int | None:
        return self.end if self._append_marker(*command) else None

    def _replicated(self, leader_epoch: int, end: int) -> None:
        super()._replicated(leader_epoch, end)
        if leader_epoch == self.leader_epoch and self.is_led and self.is_loaded:
            self.shard.on_stable(self.high_watermark)
            self._simulation.checks.on_offsets(self)

    def lose_leader(self) -> None:
        if self.is_led:
            super().lose_leader()
            self.shard.fail_all(ErrorCode.NOT_COORDINATOR)

    def elect(self) -> None:
        if self.is_led:
            return
        super().elect()
        self._offsets_end, self._offsets, self._open_offsets = 0, {}, {}
        self.is_loaded = False
        self.shard = self._new_shard()
        delay_ms = self._simulation.chance.random() * LOAD_MS
        self._simulation.timeline.after(delay_ms, self._load, self.shard)

    def _load(self, shard: GroupShard) -> None:
        if self.shard is not shard or not self.is_led:
            return
        self.load_into(shard)
        self.is_loaded = True
        shard.loaded(self._moment, self.end)
        self._simulation.checks.on_offsets(self)

    def load_into(self, shard: GroupShard) -> None:
        for header, content in self.entries:
            if isinstance(content, EndMarker):
                shard.replay_marker(header.producer_id, commits=content.commits)
            elif isinstance(content, CommittedRecords):
                for key, value in content.records:
                    shard.replay(key, value, header.producer_id)

    def shown(self, shard: GroupShard | None = None) -> dict[int, int]:
        """What clients of the shard will see when its log is stable."""
        groups = (self.shard if shard is None else shard).metrics()
        return {partition: offset for group in groups for _, partition, offset in group.committed()}

    def replayed_shard(self) -> GroupShard:
        shard = self._new_shard()
        self.load_into(shard)
        return shard

    def has_pending(self) -> bool:
        found: list[FetchReply] = []
        self.shard.submit(FetchOffsets(GROUP, None, requires_stable=True), found.append, self._moment)
        (reply,) = found
        return any(each.error for topic in reply.topics for each in topic.partitions)

    def committed(self, start: int, end: int) -> list[Content]:
        return [each for each in super().committed(start, end) if each.transaction != NO_TRANSACTION]

    def counted_offsets(self) -> dict[int, int]:
        """The same, counted from the log alone: for each partition the last record that is in no transaction, or in one
        that has committed."""
        for place, (header, content) in enumerate(self.entries[self._offsets_end :], self._offsets_end):
            producer_id = header.producer_id
            if isinstance(content, EndMarker):
                ended = self._open_offsets.pop(producer_id, [])
                if content.commits:
                    for before, committed in ended:
                        self._count_offsets(before, committed)
            elif isinstance(content, CommittedRecords) and producer_id == NO_PRODUCER_ID:
                self._count_offsets(place, content)
            elif isinstance(content, CommittedRecords):
                self._open_offsets.setdefault(producer_id, []).append((place, content))
        self._offsets_end = self.end
        return {partition: offset for partition, (_, offset) in self._offsets.items()}

    def _count_offsets(self, place: int, committed: CommittedRecords) -> None:
        for partition, offset in committed.offsets().items():
            if place > self._offsets.get(partition, (-1, 0))[0]:
                self._offsets[partition] = (place, offset)
