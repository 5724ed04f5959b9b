"""A partition as this broker serves it: the only way to its log for produce, fetch, groups and every other handler.

It appends and reads, knows its role and its ends, and reports each move of them to the requests that wait
(`waiting_requests`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from ottla.broker.partitions.follower_log import FollowerLog
from ottla.broker.partitions.partition_metrics import PartitionMetrics
from ottla.broker.partitions.partition_read import PartitionRead, ReplicaReader
from ottla.broker.partitions.sequence_gaps import SequenceGaps
from ottla.broker.partitions.topic_configs import LOG_APPEND_TIME, opening_of, record_check_of
from ottla.broker.partitions.waiting_requests import ACKS_ALL, WaitingRequests, wake
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.topics_view import PartitionNode
from ottla.model.broker_settings import REPLICA_LAG_TIME_MAX_MS
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import INTERNAL_TOPICS, NO_LEADER_EPOCH, NO_OFFSET, NodeId, TopicPartition
from ottla.model.partition_state import ChangeResult, ReplicaIncarnation
from ottla.observe.events import frequent
from ottla.protocol.fetch import NO_PREFERRED_REPLICA
from ottla.records.end_marker import EndMarker
from ottla.replication.leadership import InSyncChange
from ottla.replication.replica import Replica, Role
from ottla.runtime.disk import FileRun
from ottla.runtime.offload import Offload
from ottla.storage.errors import BeginningMissing, OutOfOrderSequence, StorageError
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.log_transactions import VerificationGuard
from ottla.storage.producers.producer_state import ProducerEntry
from ottla.storage.segment.indexes import TimestampOffset

_log = logging.getLogger(__name__)

# The required end of a batch that its producer need not wait for.
NO_WAIT: Final = 0
# How long consumers wait for a new leader to learn what its predecessors committed, while too few replicas are in sync
# for that: brokers that start together need about as long to join.  Then what is known can be read.
EPOCH_START_WAIT_MS: Final = 3_000
# How long they wait in all, also while enough replicas are in sync: one that keeps its session but does not fetch in
# the new epoch leaves the in-sync set only after `replica.lag.time.max.ms`.
WITHHELD_READS_MAX_MS: Final = 6_000
# No high watermark reaches it.
_UNREACHABLE_OFFSET: Final = 1 << 63

# Plain ints: they are compared for every fetch.
_NONE: Final = int(ErrorCode.NONE)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FENCED_EPOCH: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_NOT_AVAILABLE: Final = int(ErrorCode.OFFSET_NOT_AVAILABLE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_ENOUGH_AFTER_APPEND: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_LEADER: Final = Role.LEADER


class NotLeader(OttlaError):
    """This broker does not lead the partition."""

    error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RestOfPipeline(NotLeader):
    """The batch does not follow its producer's last one, since one before it was refused: all of them come again."""


class NotEnoughReplicas(OttlaError):
    """Fewer replicas are in sync than `min.insync.replicas` requires; nothing was appended."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS


class InSyncObserver(Protocol):
    """Is called for partitions whose in-sync set may have to change; see `Partition.propose`."""

    def look_at(self, partition: Partition) -> None: ...


class Partition:
    """One replica of a partition.  It begins as a follower; it answers no client before `on_state` makes it the leader.

    Ends are exclusive.  log start <= high watermark <= log end, and last stable offset <= high watermark
    (docs/invariants.md, 6).  Other modules read the public fields and assign none of them.
    """

    __slots__ = (
        "_accepts_acks_all",
        "_gaps",
        "_in_sync_observer",
        "_is_in_sync_follower",
        "_log",
        "_on_log_failed",
        "_replica",
        "_unstable",
        "_withheld_below",
        "_withheld_since_ms",
        "batch_fault",
        "follower_log",
        "high_watermark",
        "index",
        "is_served",
        "leader_epoch",
        "max_message_bytes",
        "metrics",
        "name_bytes",
        "node",
        "opening",
        "role",
        "stamps_append_time",
        "timestamp_after_max_ms",
        "topic_id",
        "topic_id_bytes",
        "topic_partition",
        "waiting",
    )

    def __init__(
        self,
        log: Log,
        node_id: NodeId,
        *,
        high_watermark: int = 0,
        lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS.default,
        in_sync_observer: InSyncObserver | None = None,
        on_log_failed: Callable[[TopicPartition], None] | None = None,
    ) -> None:
        """`high_watermark` is the one that this replica knew before it was stopped, if any.

        `on_log_failed` is called for each append that a log refuses which takes nothing any more: others may lead.
        """
        self._log = log
        # What readers of committed records wait for; empty, as a rule.
        self._unstable: Final = log.transactions.unstable
        self._replica = Replica(node_id, log, high_watermark, lag_time_max_ms)
        self._in_sync_observer = in_sync_observer
        self._on_log_failed = on_log_failed
        self.topic_partition: TopicPartition = log.topic_partition
        self.name_bytes = log.topic_partition.topic.encode()
        self.topic_id = log.topic_id
        self.topic_id_bytes = log.topic_id.bytes
        self.index = log.topic_partition.partition
        # The tree's node that role, leader and epoch follow from; None before the first one.
        self.node: PartitionNode | None = None
        # False once this broker has ceased to serve it: a request that still holds it must not continue to read.
        self.is_served = True
        # These four are the replica's, which decides them: produce and fetch compare them in every request.
        self.role = self._replica.role
        self.leader_epoch = self._replica.leader_epoch
        self.high_watermark = self._replica.high_watermark
        self._accepts_acks_all = False
        self._gaps = SequenceGaps()
        self._is_in_sync_follower = False
        # Consumers wait while the high watermark is below it: an earlier leader may have sent them a higher one.
        self._withheld_below = 0
        self._withheld_since_ms = 0
        self.waiting: Final = WaitingRequests(log, self._replica)
        self.follower_log: Final = FollowerLog(log, self._replica, self._follow_watermark)
        self.metrics: Final = PartitionMetrics(log, self._replica)
        self._apply_config(log.config)
        log.watch(on_stable=self._on_stable, on_truncated=self._on_truncated, committed_end=lambda: self.high_watermark)

    @property
    def leader_id(self) -> NodeId:
        """The broker that leads, this one included; -1 when none does."""
        return self._replica.leader

    @property
    def is_suspended_leader(self) -> bool:
        """Whether this broker serves no client only because its lease is over: it may lead on in the same epoch."""
        return self._replica.role is _LEADER and self.role is not _LEADER

    @property
    def is_in_sync(self) -> bool:
        """Whether the tree has this replica among those in sync."""
        return self.node is not None and self._replica.node_id in self.node.state.in_sync_nodes()

    @property
    def in_sync_count(self) -> int:
        """How many replicas are in sync, the leader included; 0 at a follower."""
        return self._replica.in_sync_count

    @property
    def has_reached_epoch_start(self) -> bool:
        """Whether the high watermark covers all that earlier leaders committed (KIP-207)."""
        return self._replica.has_reached_epoch_start

    def on_state(self, node: PartitionNode, lifecycle: BrokerLifecycle, now_ms: int) -> bool:
        """Take the role that the tree gives this broker; True when role, leader or leader epoch changed.

        Also called when the broker's own life, its lease or the live brokers in `lifecycle` are others.
        Raises `EpochBehindLog`: the partition then neither leads nor follows.
        """
        replica = self._replica
        if self.node is not None and node.state_version < self.node.state_version:
            # This broker's own change of the state is newer than the view.
            node = node._replace(state=self.node.state, state_version=self.node.state_version)
        self.node = node
        before = (self.role, replica.leader, replica.leader_epoch)
        try:
            replica.on_state(
                node.replicas,
                node.state,
                node.state_version,
                node.min_in_sync(self._log.config.min_insync_replicas),
                lifecycle.live,
                lifecycle.own_epoch(node.state),
                now_ms,
            )
        finally:
            # The replica keeps its leadership while the lease is over: the same session may extend it, and what was
            # proposed for the in-sync set must not be forgotten.  Clients are refused meanwhile.
            role = Role.FOLLOWER if lifecycle.is_suspended else replica.role
            after = (role, replica.leader, replica.leader_epoch)
            if role is not self.role:
                self.metrics.on_role(is_leader=role is _LEADER)
            self.role = role
            self.leader_epoch = replica.leader_epoch
            if replica.role is not _LEADER:
                self._withheld_below = 0
            elif after[1:] != before[1:]:
                self._withheld_below = replica.epoch_start_offset
                self._withheld_since_ms = now_ms
                # What is not stable here may wait for a long `flush.ms`, and consumers would wait for it.
                self._log.flush_soon()
            if after != before:
                # Answers of coordinators that are on their way are about another leadership.
                self._log.transactions.forget_guards()
                if role is not _LEADER:
                    self.waiting.fail_produces(_NOT_LEADER)
                    # What it appended as leader may wait for a long `flush.ms`; a follower fetches from a stable end.
                    self._log.flush_soon()
                elif not lifecycle.is_sole:
                    # The one broker of its tree serves no client before it leads.
                    self._gaps.on_leading()
                    self._log.expect_beginnings(True)
                self.waiting.wake_fetches()
            self._follow_replica()
            own = ReplicaIncarnation(lifecycle.node_id, lifecycle.own_epoch(node.state))
            is_in_sync_follower = (
                node.state.leader != own.node_id and own in node.state.in_sync and not lifecycle.is_suspended
            )
            if self._is_in_sync_follower and not is_in_sync_follower:
                self.waiting.wake_fetches()
            self._is_in_sync_follower = is_in_sync_follower
            if self.waiting.deletions:
                self._end_deletions()
        if replica.role is _LEADER and len(node.replicas) > 1 and self._in_sync_observer is not None:
            self._in_sync_observer.look_at(self)
        return after != before

    @property
    def withholds_reads(self) -> bool:
        """Whether consumers wait: until the high watermark has reached the start of the leader epoch, or until a change
        that gives up the leadership has its outcome.
        """
        return self.high_watermark < self._withheld_below

    def end_withholding(self, now_ms: int) -> None:
        """Let consumers read what is known to be committed, if they have waited too long for the rest.

        While too few replicas are in sync it may stay unknown for long.  Otherwise each of them fetches soon or leaves,
        which may take longer than consumers should wait.
        """
        if self.withholds_reads:
            wait_max_ms = EPOCH_START_WAIT_MS if self._replica.is_frozen else WITHHELD_READS_MAX_MS
            if now_ms - self._withheld_since_ms >= wait_max_ms:
                self._withheld_below = 0
                self.waiting.wake_fetches()

    def withhold_reads(self, now_ms: int) -> None:
        """A change is about to be written after which another broker leads without this one in sync.

        It may commit records before this broker sees the change, whose high watermark consumers would be shown next.
        """
        if self._replica.role is _LEADER:
            self._withheld_below = _UNREACHABLE_OFFSET
            self._withheld_since_ms = now_ms

    def resume_reads(self) -> None:
        """The change was not applied: this broker still leads."""
        if self._withheld_below == _UNREACHABLE_OFFSET:
            self._withheld_below = self._replica.epoch_start_offset
            self.waiting.wake_fetches()

    def on_live(self, live: Mapping[NodeId, int]) -> None:
        """These brokers count as live until the next state; `propose` returns what follows."""
        self._replica.on_live(live)
        if self.waiting.deletions:
            self._end_deletions()

    def leadership_error(self, current_leader_epoch: int) -> int:
        """The error for a client that knows `current_leader_epoch` (-1: none), 0 when it may continue (KIP-320)."""
        if current_leader_epoch != NO_LEADER_EPOCH:
            leader_epoch = self.leader_epoch
            if current_leader_epoch != leader_epoch:
                return _UNKNOWN_EPOCH if current_leader_epoch > leader_epoch else _FENCED_EPOCH
        return _NONE if self.role is _LEADER else _NOT_LEADER

    async def update_config_in_steps(self, config: LogConfig, now_ms: int, offload: Offload) -> None:
        """`update_config`, with its syncs elsewhere.  Raises `OSError`."""
        await self._log.prepare_config(config, offload)
        self.update_config(config, now_ms)

    def update_config(self, config: LogConfig, now_ms: int) -> None:
        """Apply new settings; they are in force for the next request."""
        self._log.update_config(config)
        self._apply_config(config)
        if self.node is not None:
            self._replica.on_min_in_sync(self.node.min_in_sync(config.min_insync_replicas), now_ms)
        self._follow_replica()
        # Also when only the leader is in sync: a lower minimum has to end the others' eligibility first.
        if self._in_sync_observer is not None and self.role is _LEADER and self.node and len(self.node.replicas) > 1:
            self._in_sync_observer.look_at(self)

    def retire(self, error_code: int) -> None:
        """Cease to serve the partition: answer every request that waits for it, produces with `error_code`."""
        self.is_served = False
        self.waiting.fail(error_code)

    def _end_deletions(self) -> None:
        """What the low watermark depends on was changed."""
        if self.role is _LEADER:
            self.waiting.end_deletions(_NONE, self._replica.low_watermark)
        else:
            self.waiting.end_deletions(_NOT_LEADER)

    def _apply_config(self, config: LogConfig) -> None:
        """The settings that produce needs, in a form that is ready to compare."""
        self.max_message_bytes = config.max_message_bytes
        self.stamps_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        # Finds the record of an uncompressed batch that no consumer could read; None: it is not checked.
        check = record_check_of(config)
        self.batch_fault = None if check is None else check.batch_fault
        # Why produced batches are opened; None, as a rule: they are not.
        self.opening = opening_of(config)

    @property
    def _min_in_sync_count(self) -> int:
        """The in-sync replicas without which acks=all is refused."""
        setting = self._log.config.min_insync_replicas
        if self.node is not None and self.topic_partition.topic in INTERNAL_TOPICS:
            # The setting is meant for users' topics: groups continue with as many replicas as their log has.
            return self.node.min_in_sync(setting)
        # More than there are replicas can never be in sync, and are refused all the same (docs/compatibility.md).
        return setting

    def _follow_replica(self) -> None:
        """The replica got a state, a fetch or an append: take over what it decided."""
        replica = self._replica
        in_sync_count = replica.in_sync_count
        self._accepts_acks_all = in_sync_count >= self._min_in_sync_count
        if replica.high_watermark != self.high_watermark:
            self._move_high_watermark(replica.high_watermark)
        for_all = self.waiting.for_all
        if for_all and in_sync_count and not replica.has_min_in_sync:
            # Their records are in the log and may come to be committed: only the acknowledgement is refused.
            for_all.fail_all(_NOT_ENOUGH_AFTER_APPEND)

    def on_follower_gone(self, node_id: NodeId, broker_epoch: int) -> bool:
        """The process of a follower has ended; returns whether `propose` may let it leave the in-sync set."""
        is_known = self._replica.on_gone(node_id, broker_epoch)
        if self.waiting.deletions:
            self._end_deletions()
        return is_known

    def propose(self, now_ms: int) -> InSyncChange | None:
        """The change of the in-sync set that is due, None when none is or another one is under way.

        It is written to the tree over the version that it expects; `on_outcome` is called with what became of it.
        """
        change = self._replica.propose(now_ms)
        if change is not None:
            self._follow_replica()
        return change

    def on_outcome(self, change: InSyncChange, outcome: ChangeResult, version: int, now_ms: int) -> None:
        """What became of a change that `propose` returned; `version` is the node's when it was applied."""
        if outcome is ChangeResult.APPLIED and self.node is not None and version > self.node.state_version:
            self.node = self.node._replace(state=change.state, state_version=version)
        self._replica.on_outcome(change, outcome, version, now_ms)
        self._follow_replica()

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read; inclusive."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def takes_records(self) -> bool:
        """Whether the log is to take appends: after a failure of its disk, or damage, not before the next start."""
        return self._log.failure is None and not self._log.is_distrusted

    @property
    def stable_end(self) -> int:
        """Exclusive end of what this replica will not lose (docs/invariants.md, 6)."""
        return self._log.stable_end

    @property
    def last_stable_offset(self) -> int:
        """The exclusive limit of committed reads: below it every transaction has its outcome, for good."""
        if not self._unstable:
            return self.high_watermark
        return self._log.transactions.last_stable_offset(self.high_watermark, self._log.log_start_offset)

    @property
    def knows_stable_offset(self) -> bool:
        """Whether `last_stable_offset` is exact: not yet where markers may be above the high watermark since before a
        restart.
        """
        return self.high_watermark >= self._log.transactions.known_from

    @property
    def size_bytes(self) -> int:
        """All segments' `.log` files."""
        return self._log.size_bytes

    @property
    def accepts_acks_all(self) -> bool:
        """Whether enough replicas are in sync for produces with acks=all: as many as the setting requires.

        That may be more than the topic has replicas, other than for the high watermark (`Replica.has_min_in_sync`).
        """
        return self._accepts_acks_all

    def append(
        self,
        batch: memoryview,
        header: tuple[int, ...],
        acks: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        *,
        has_sequence: bool = True,
    ) -> tuple[int, int, int]:
        """Append ONE whole batch as leader: (base offset, required end, log start offset).

        `required_end` is what the producer must wait for with `waiting.park_produce`: `NO_WAIT` when `acks` is met
        already.  `batch` is writable and checked by the caller; `header` is its head.  A duplicate of an idempotent
        producer appends nothing and has the base offset that it got first.
        `guard` is what `self.guard` returned for a transactional batch.  Without `has_sequence` it has the offsets that
        a group's coordinator writes for a producer: each has base sequence 0, and neither is held against the last one.
        Raises `NotLeader`, `NotEnoughReplicas`, `AppendRefused` or `StorageError`; then nothing was appended.
        """
        log = self._log
        if self.role is not _LEADER:
            raise NotLeader(f"this broker does not lead {self.topic_partition}")
        if acks == ACKS_ALL and not self._accepts_acks_all:
            self.on_refused(now_ms)
            raise self._not_enough_replicas()
        try:
            base_offset = log.append(batch, header, now_ms, guard, has_sequence)
        except OutOfOrderSequence as gap:
            base_offset = self._after_gap(gap, batch, header, now_ms, guard)
        except StorageError:
            self.on_refused(now_ms)
            if log.failure is not None and self._on_log_failed is not None:
                self._on_log_failed(self.topic_partition)
            raise
        if self.waiting.for_append:
            wake(self.waiting.for_append)
        required_end: int = base_offset + header[6] + 1
        if required_end <= (self.high_watermark if acks == ACKS_ALL else log.stable_end) or not acks:
            required_end = NO_WAIT
        return base_offset, required_end, log.log_start_offset

    def _not_enough_replicas(self) -> NotEnoughReplicas:
        return NotEnoughReplicas(
            f"of {self.topic_partition} {counted(self.in_sync_count, 'replica is', 'replicas are')} in sync, "
            f"{self._min_in_sync_count} are required (min.insync.replicas)"
        )

    def _after_gap(
        self,
        gap: OutOfOrderSequence,
        batch: memoryview,
        header: tuple[int, ...],
        now_ms: int,
        guard: VerificationGuard | None,
    ) -> int:
        """What becomes of a batch that does not follow its producer's last one: its base offset, or an error."""
        if self._gaps.is_rest_of_pipeline(now_ms):
            raise RestOfPipeline(f"{gap}; what precedes it may be on its way to {self.topic_partition}") from gap
        if isinstance(gap, BeginningMissing):
            # Nothing was refused lately: the producer was forgotten for its age, or its records were deleted.
            self._log.expect_beginnings(False)
            return self._log.append(batch, header, now_ms, guard)
        raise gap

    def guard(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, advances_epoch: bool = False
    ) -> VerificationGuard | None:
        """What `append` needs with a transactional batch that may open a transaction; None when that is open already.

        Call it before the coordinator is queried whether the partition is in the transaction: a marker that comes
        before the answer destroys the guard, and the append raises `WrongTransactionState`.  After a refusal, or
        without an answer, pass it to `verification_refused`; when the batch is not appended for another reason, to
        `give_up_guard`.  `first_sequence` is 0 for a batch without sequences.
        `advances_epoch`: see `VerificationGuard`.  Raises `NotLeader` and `InvalidProducerEpoch`.
        """
        if self.role is not _LEADER:
            raise NotLeader(f"this broker does not lead {self.topic_partition}")
        return self._log.transactions.guard(producer_id, producer_epoch, first_sequence, advances_epoch=advances_epoch)

    def has_guard(self, guard: VerificationGuard) -> bool:
        """Whether an append with it would be accepted: no marker came since it was made."""
        return self._log.transactions.has_guard(guard)

    def verification_refused(self, guard: VerificationGuard) -> None:
        """The coordinator does not have the partition in the transaction, or did not answer: nothing is appended."""
        self._log.transactions.verification_refused(guard)

    def give_up_guard(self, guard: VerificationGuard) -> None:
        """A batch that was given it is not appended; others may still wait with it."""
        self._log.transactions.give_up(guard)

    def append_marker(
        self, marker: EndMarker, producer_id: int, producer_epoch: int, now_ms: int, *, advances_epoch: bool
    ) -> int:
        """Append a coordinator's marker as leader; returns what it must wait for with `waiting.park_produce` and
        `ACKS_ALL` before it reports the marker as written: `NO_WAIT` when that is met already.

        `advances_epoch`: `producer_epoch` is above that of the transaction's records (KIP-890, part 2).  A marker that
        repeats one in the log is not written again, and waits for that one.
        Raises `NotLeader`, `NotEnoughReplicas`, `CoordinatorReplaced`, `InvalidProducerEpoch` or `StorageError`; then
        nothing was appended.
        """
        log = self._log
        if self.role is not _LEADER:
            raise NotLeader(f"this broker does not lead {self.topic_partition}")
        if not self._accepts_acks_all:
            raise self._not_enough_replicas()
        try:
            is_new = log.append_marker(marker, producer_id, producer_epoch, now_ms, advances_epoch=advances_epoch)
        except StorageError:
            if log.failure is not None and self._on_log_failed is not None:
                self._on_log_failed(self.topic_partition)
            raise
        if is_new and self.waiting.for_append:
            wake(self.waiting.for_append)
        return log.log_end_offset if log.log_end_offset > self.high_watermark else NO_WAIT

    def producers(self) -> list[tuple[int, ProducerEntry]]:
        """(producer id, state) of each producer that is remembered, by its id."""
        return sorted(self._log.producers.entries(), key=lambda each: each[0])

    def on_refused(self, now_ms: int) -> None:
        """A batch was refused for a reason that passes, so those that its producer sent after it will not follow."""
        self._gaps.on_refused(now_ms)
        self._log.expect_beginnings(True)

    def _on_truncated(self) -> None:
        """The log was truncated or reset; leaders never do.

        The high watermark is lowered with the log's end, and produces that wait above it fail with
        NOT_LEADER_OR_FOLLOWER: their batches are gone.
        """
        end_offset = self._log.log_end_offset
        self._replica.on_truncated()
        self.high_watermark = self._replica.high_watermark
        self.waiting.fail_produces(_NOT_LEADER, above=end_offset)
        self.waiting.wake_fetches()

    def delete_records_before(self, offset: int) -> None:
        """DeleteRecords: the log start moves up to `offset`, which is not above the high watermark."""
        assert offset <= self.high_watermark
        self._log.delete_records_before(offset)

    @property
    def low_watermark(self) -> int:
        """Below it no live replica has records; at the leader, else -1."""
        return self._replica.low_watermark

    def read(
        self,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        size_bytes_max: int,
        *,
        whole_first_batch: bool,
        may_follow: bool = False,
        reads_committed: bool = False,
    ) -> PartitionRead:
        """Read for a fetch: records below the reader's limit, or an error, or the point where its history diverges from
        this log's.

        Consumers who `may_follow` are also served by a follower (KIP-392), below the high watermark that it knows,
        while it is in sync: one that is not may lag for good, and sends them back to the leader.

        The limit is the high watermark, with `reads_committed` the last stable offset.  A reader above the high
        watermark gets OFFSET_NOT_AVAILABLE and retries (KIP-392), and so does each reader while the leader
        `withholds_reads`.  `leader_epoch` and `last_fetched_epoch` are what the reader knows, -1 for nothing.  No
        more than `size_bytes_max` bytes, which may cut the last batch; the first one is whole if `whole_first_batch`,
        else left out when it does not fit.
        """
        log = self._log
        if self.role is not _LEADER or leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            error = self.leadership_error(leader_epoch)
            if error != _NOT_LEADER or not may_follow or not self._is_in_sync_follower:
                return PartitionRead(self.index, error)
        high_watermark = limit_offset = stable_offset = self.high_watermark
        if high_watermark < self._withheld_below:
            return PartitionRead(self.index, _NOT_AVAILABLE)
        if self._unstable:
            stable_offset = self.last_stable_offset
        if reads_committed:
            limit_offset = stable_offset
            if not self.knows_stable_offset:
                return PartitionRead(self.index, _NOT_AVAILABLE)
        run = None
        aborted: Sequence[tuple[int, int]] = ()
        try:
            if last_fetched_epoch >= 0:
                diverging = log.epoch_end_offset(last_fetched_epoch)
                if diverging[0] < 0:
                    # An epoch that this log has not reached: there is no offset from which the client could continue.
                    return PartitionRead(self.index, _OUT_OF_RANGE)
                if diverging[0] < last_fetched_epoch or diverging[1] < fetch_offset:
                    return PartitionRead(
                        self.index, _NONE, high_watermark, stable_offset, log.log_start_offset, diverging
                    )
            if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
                return PartitionRead(self.index, _OUT_OF_RANGE)
            if fetch_offset < limit_offset and (size_bytes_max > 0 or whole_first_batch):
                run = log.read(fetch_offset, limit_offset, max(size_bytes_max, 0), whole_first_batch=whole_first_batch)
                if reads_committed and run is not None:
                    aborted = [
                        (each.producer_id, each.first_offset)
                        for each in log.aborted.in_run(run, fetch_offset, limit_offset)
                    ]
            elif fetch_offset > high_watermark:
                # It has read further from a former leader than is known to be committed here, or reads from a follower
                # that knew less.  A high watermark below its position would take back what it has read.
                return PartitionRead(self.index, _NOT_AVAILABLE)
        except OttlaError as error:
            return PartitionRead(self.index, error.error_code)
        except OSError as error:
            # Opening or reading a closed segment failed: no descriptor left, a disk that fails to read.
            _log.error("fetch.read_failed", extra=frequent(partition=self.topic_partition, error=str(error)))
            return PartitionRead(self.index, _STORAGE_ERROR)
        # The class's own constructor is a Python function, which takes 0.2 us more.
        start_offset = log.log_start_offset
        return tuple.__new__(
            PartitionRead,
            (self.index, _NONE, high_watermark, stable_offset, start_offset, None, aborted, run, NO_PREFERRED_REPLICA),
        )

    def read_elsewhere(self, nodes: Collection[NodeId], leader_epoch: int, fetch_offset: int) -> PartitionRead | None:
        """The answer to a consumer who should fetch from a replica on one of `nodes`; None when it is served here."""
        if self.role is not _LEADER or leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch) or self.withholds_reads:
            return None
        log_start_offset = self._log.log_start_offset
        node_id = self._replica.nearest(nodes, fetch_offset) if fetch_offset >= log_start_offset else None
        if node_id is None:
            return None
        return PartitionRead(
            self.index,
            _NONE,
            self.high_watermark,
            self.last_stable_offset,
            log_start_offset,
            preferred_replica=node_id,
        )

    def read_as_replica(
        self,
        reader: ReplicaReader,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        size_bytes_max: int,
        *,
        whole_first_batch: bool,
        follower_log_start: int = NO_OFFSET,
    ) -> PartitionRead:
        """Read for a follower: up to the log's end, or an error, or where its history diverges from this log's.

        The first read of a request shows that the follower holds everything below `fetch_offset`; it may move the high
        watermark.
        """
        log = self._log
        index = self.index
        if not reader.is_counted:
            verdict = self._replica.on_fetch(
                reader.node_id,
                reader.broker_epoch,
                leader_epoch,
                fetch_offset,
                last_fetched_epoch,
                reader.now_ms,
                follower_log_start,
            )
            if verdict.error_code:
                # The log's start shows a follower that is out of range where to continue.
                return PartitionRead(index, verdict.error_code, log_start_offset=log.log_start_offset)
            self._follow_watermark()
            if self.waiting.deletions:
                self._end_deletions()
            if verdict.diverging is not None:
                return PartitionRead(
                    index, _NONE, self.high_watermark, NO_OFFSET, log.log_start_offset, verdict.diverging
                )
            if verdict.may_join and self._in_sync_observer is not None:
                self._in_sync_observer.look_at(self)
        elif self.role is not _LEADER or leader_epoch != self.leader_epoch:
            return PartitionRead(index, self.leadership_error(leader_epoch))
        run = None
        end_offset = log.log_end_offset
        try:
            if not log.log_start_offset <= fetch_offset <= end_offset:
                return PartitionRead(index, _OUT_OF_RANGE, log_start_offset=log.log_start_offset)
            if fetch_offset < end_offset and (size_bytes_max > 0 or whole_first_batch):
                run = log.read(fetch_offset, end_offset, max(size_bytes_max, 0), whole_first_batch=whole_first_batch)
        except OttlaError as error:
            return PartitionRead(index, error.error_code)
        except OSError as error:
            _log.error("fetch.read_failed", extra=frequent(partition=self.topic_partition, error=str(error)))
            return PartitionRead(index, _STORAGE_ERROR)
        return PartitionRead(index, _NONE, self.high_watermark, NO_OFFSET, log.log_start_offset, None, (), run)

    def read_batches(self, start_offset: int, end_offset: int, size_bytes_max: int) -> FileRun | None:
        """Batches from the one that holds `start_offset`, the first one whole; for the broker's own reading.

        Unlike `read` it goes up to any `end_offset`.  Raises `OttlaError` or `OSError`.
        """
        return self._log.read(start_offset, end_offset, size_bytes_max, whole_first_batch=True)

    def ends_in_older_segment(
        self, fetch_offset: int, *, as_replica: bool = False, reads_committed: bool = False
    ) -> bool:
        """Whether a read at `fetch_offset` ends with its segment although later records are readable.

        Waiting adds nothing to such a read.
        """
        if self.withholds_reads and not as_replica:
            return False
        if reads_committed:
            limit_offset = self.last_stable_offset
        else:
            limit_offset = self._log.log_end_offset if as_replica else self.high_watermark
        return fetch_offset < min(limit_offset, self._log.active_base_offset)

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int, offload: Offload
    ) -> TimestampOffset | None:
        """The first record below `end_offset` at or after a time.  Raises `OttlaError` or `OSError`."""
        return await self._log.offset_for_timestamp(timestamp_ms, end_offset, offload)

    async def offset_of_max_timestamp(self, end_offset: int, offload: Offload) -> TimestampOffset | None:
        """The first record below `end_offset` with the greatest timestamp there.  Raises `OttlaError` or `OSError`."""
        return await self._log.offset_of_max_timestamp(end_offset, offload)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, its end offset), (-1, -1) when `epoch` was never known."""
        return self._log.epoch_end_offset(epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was appended, -1 when it is not known."""
        return self._log.epoch_of(offset)

    def _on_stable(self) -> None:
        """This replica's stable end moved."""
        for_leader = self.waiting.for_leader
        if for_leader:
            for_leader.release(self._log.stable_end)
        replica = self._replica
        replica.on_stable()
        if replica.high_watermark != self.high_watermark:
            self._move_high_watermark(replica.high_watermark)

    def _follow_watermark(self) -> None:
        if self._replica.high_watermark != self.high_watermark:
            self._move_high_watermark(self._replica.high_watermark)

    def _move_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self._unstable:
            self._log.transactions.replicated(high_watermark)
        waiting = self.waiting
        if waiting.for_all:
            waiting.for_all.release(high_watermark)
        if waiting.for_watermark:
            wake(waiting.for_watermark)
        if waiting.for_append:
            for fetch in list(waiting.for_append):
                fetch.on_watermark()
