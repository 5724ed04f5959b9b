"""A partition as this broker serves it: the only way to its log for produce, fetch, groups and every other handler.

It appends and reads, knows its role and its ends, and wakes the requests that wait for an end to move.
"""

from __future__ import annotations

import enum
import logging
from typing import Final, Protocol

from ottla.broker.batch_opening import opening_of
from ottla.broker.membership import Membership
from ottla.broker.parked_produces import ParkedProduces, WaitingProduce
from ottla.broker.partition_errors import NotEnoughReplicas, NotLeader, TreeBehindLog
from ottla.broker.partition_read import PartitionRead
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import INTERNAL_TOPICS, NO_LEADER_EPOCH, NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER
from ottla.observe.events import fields
from ottla.runtime.disk import FileRun
from ottla.storage.log.log import Appended, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.time_index import TimestampOffset

_log = logging.getLogger(__name__)

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
# The required end of a batch that its producer need not wait for.
NO_WAIT: Final = 0
_LOG_APPEND_TIME: Final = "LogAppendTime"

# Plain ints: they are compared for every fetch.
_NONE: Final = int(ErrorCode.NONE)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FENCED_EPOCH: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Role(enum.Enum):
    """This broker's role for the partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


class WakeOn(enum.Enum):
    """What a parked fetch waits for: consumers for the high watermark, replicas for the log's end."""

    HIGH_WATERMARK = "high watermark"
    APPEND = "append"


class WaitingFetch(Protocol):
    """A fetch request that waits for records in some of its partitions."""

    def on_readable(self) -> None:
        """An end of one of its partitions moved, or the partition leaves this broker."""
        ...


_LEADER: Final = Role.LEADER


class Partition:
    """One replica of a partition.  It begins as a follower; it answers no client before `on_state` makes it the leader.

    Ends are exclusive.  log start <= high watermark <= log end, and last stable offset <= high watermark
    (docs/invariants.md, 6).  Other modules read the public fields and assign none of them.
    """

    __slots__ = (
        "_append_waiters",
        "_has_min_in_sync",
        "_log",
        "_parked_for_all",
        "_parked_for_leader",
        "_watermark_waiters",
        "high_watermark",
        "in_sync_count",
        "index",
        "is_served",
        "leader_epoch",
        "leader_id",
        "max_message_bytes",
        "name_bytes",
        "node",
        "opening",
        "role",
        "stamps_append_time",
        "timestamp_after_max_ms",
        "topic_id",
        "topic_id_bytes",
        "topic_partition",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.name_bytes = log.topic_partition.topic.encode()
        self.topic_id = log.topic_id
        self.topic_id_bytes = log.topic_id.bytes
        self.index = log.topic_partition.partition
        self.role = Role.FOLLOWER
        # The tree's node that role, leader and epoch follow from; None before the first one.
        self.node: PartitionNode | None = None
        self.leader_id: NodeId = NO_LEADER
        self.leader_epoch = log.leader_epoch
        # False once this broker has ceased to serve it: a request that still holds it must not continue to read.
        self.is_served = True
        # Replicas that are in sync, this one included: no other broker follows it.
        self.in_sync_count = 1
        self.high_watermark = log.stable_end
        # Both are made when the first produce waits: a thousand idle partitions hold no queue.
        self._parked_for_leader: ParkedProduces | None = None
        self._parked_for_all: ParkedProduces | None = None
        self._watermark_waiters: dict[WaitingFetch, None] = {}
        self._append_waiters: dict[WaitingFetch, None] | None = None
        self._apply_config(log.config)
        log.watch(on_stable=self._on_stable, on_truncated=self._on_truncated)

    # --- role and settings ------------------------------------------------------------------------------------

    def on_state(self, node: PartitionNode, membership: Membership) -> bool:
        """Take the role that the tree gives this broker; True when role, leader or leader epoch changed.

        Also called when the broker's own life in `membership` is another one.  Raises `TreeBehindLog`; then this
        replica neither leads nor follows.
        """
        state = node.state
        epoch = state.leader_epoch
        self.node = node
        if epoch < self._log.leader_epoch:
            self._resign()
            raise TreeBehindLog(
                f"{self.topic_partition} has records of leader epoch {self._log.leader_epoch}, "
                f"and the tree knows epochs up to {epoch} only",
                hint="the tree was restored from an older copy: restore the data directories of that time too",
            )
        leads = membership.leads(state)
        role = Role.LEADER if leads else Role.FOLLOWER
        if (role, state.leader, epoch) == (self.role, self.leader_id, self.leader_epoch):
            return False
        if not leads:
            self._resign()
        elif epoch != self._log.leader_epoch:
            self._log.start_epoch(epoch)
        self.role = role
        self.leader_id = state.leader
        self.leader_epoch = epoch
        if leads:
            self._move_high_watermark()
        self.wake_fetches()
        return True

    def _resign(self) -> None:
        """What waits here is answered; its client finds the new leader."""
        if self.role is _LEADER:
            self.role = Role.FOLLOWER
            self.fail_waiting(_NOT_LEADER)

    def leadership_error(self, current_leader_epoch: int) -> int:
        """The error for a client that knows `current_leader_epoch` (-1: none), 0 when it may continue (KIP-320)."""
        if current_leader_epoch != NO_LEADER_EPOCH:
            leader_epoch = self.leader_epoch
            if current_leader_epoch != leader_epoch:
                return _UNKNOWN_EPOCH if current_leader_epoch > leader_epoch else _FENCED_EPOCH
        return _NONE if self.role is _LEADER else _NOT_LEADER

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings; they are in force for the next request."""
        self._log.update_config(config)
        self._apply_config(config)

    def retire(self, error_code: int) -> None:
        """Cease to serve the partition: answer every request that waits for it, produces with `error_code`."""
        self.is_served = False
        self.fail_waiting(error_code)

    def _apply_config(self, config: LogConfig) -> None:
        """The settings that produce needs, in a form that is ready to compare."""
        self.max_message_bytes = config.max_message_bytes
        self.stamps_append_time = config.message_timestamp_type == _LOG_APPEND_TIME
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        # Why produced batches are opened; None, as a rule: they are not.
        self.opening = opening_of(config)
        min_in_sync_count = config.min_insync_replicas
        if self.topic_partition.topic in INTERNAL_TOPICS:
            # The setting is meant for users' topics: groups continue with the replicas that their log has, as in Kafka.
            min_in_sync_count = 1
        self._has_min_in_sync = self.in_sync_count >= min_in_sync_count

    # --- ends -------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read; inclusive."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def stable_end(self) -> int:
        """Exclusive end of what this replica will not lose (docs/invariants.md, 6)."""
        return self._log.stable_end

    @property
    def last_stable_offset(self) -> int:
        """The exclusive limit of committed reads: the high watermark, since there are no transactions."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        """All segments' `.log` files."""
        return self._log.size_bytes

    @property
    def appended(self) -> Appended:
        """What was appended since this broker opened the log."""
        return self._log.appended

    # --- appending --------------------------------------------------------------------------------------------

    def append(self, batch: memoryview, header: tuple[int, ...], acks: int, now_ms: int) -> tuple[int, int, int]:
        """Append ONE whole batch as leader: (base offset, required end, log start offset).

        `required_end` is what the producer must wait for with `park_produce`: `NO_WAIT` when `acks` is met already.
        `batch` is writable and checked by the caller; `header` is its head.  A duplicate of an idempotent producer
        appends nothing and has the base offset that it got first.
        Raises `NotLeader`, `NotEnoughReplicas`, `AppendRefused` or `StorageError`; then nothing was appended.
        """
        log = self._log
        if self.role is not _LEADER:
            raise NotLeader(f"this broker does not lead {self.topic_partition}")
        if acks == ACKS_ALL and not self._has_min_in_sync:
            raise NotEnoughReplicas(
                f"{self.in_sync_count} replica(s) of {self.topic_partition} are in sync, "
                f"{log.config.min_insync_replicas} are required (min.insync.replicas)"
            )
        base_offset = log.append(batch, header, now_ms)
        if self._append_waiters:
            _wake(self._append_waiters)
        required_end: int = base_offset + header[6] + 1
        if required_end <= (self.high_watermark if acks == ACKS_ALL else log.stable_end) or not acks:
            required_end = NO_WAIT
        return base_offset, required_end, log.log_start_offset

    def truncate_to(self, offset: int) -> None:
        """Cut the log to end at `offset`, or below it where that lies inside a batch; leaders never do.

        The high watermark is lowered with the log's end, and produces that wait above it fail with
        NOT_LEADER_OR_FOLLOWER: their batches are gone.  Raises `StorageError`.
        """
        self._log.truncate_to(offset)

    def _on_truncated(self) -> None:
        """The log's end was lowered."""
        end_offset = self._log.log_end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        for parked in (self._parked_for_leader, self._parked_for_all):
            if parked:
                parked.fail_above(end_offset, _NOT_LEADER)
        self.wake_fetches()

    def delete_records_before(self, offset: int) -> None:
        """DeleteRecords: the log start moves up to `offset`, which is not above the high watermark."""
        assert offset <= self.high_watermark
        self._log.delete_records_before(offset)

    # --- reading ----------------------------------------------------------------------------------------------

    def read(
        self,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        size_bytes_max: int,
        *,
        whole_first_batch: bool,
        reads_committed: bool = False,
    ) -> PartitionRead:
        """Read for a fetch: records below the reader's limit, or an error, or the point where its history diverges from
        ours.

        The limit is the high watermark, and the last stable offset if it `reads_committed`.  `leader_epoch` and
        `last_fetched_epoch` are what the reader knows, -1 for nothing.  No more than `size_bytes_max` bytes, which may
        cut the last batch; the first one is whole if `whole_first_batch`, else left out when it does not fit.
        """
        log = self._log
        if self.role is not _LEADER or leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            return PartitionRead(self.index, self.leadership_error(leader_epoch))
        high_watermark = last_stable_offset = self.high_watermark
        limit_offset = last_stable_offset if reads_committed else high_watermark
        run = None
        try:
            if last_fetched_epoch >= 0:
                diverging = log.epoch_end_offset(last_fetched_epoch)
                if diverging[0] < 0:
                    # An epoch that this log has not reached: there is no offset from which the client could continue.
                    return PartitionRead(self.index, _OUT_OF_RANGE)
                if diverging[0] < last_fetched_epoch or diverging[1] < fetch_offset:
                    return PartitionRead(
                        self.index, _NONE, high_watermark, last_stable_offset, log.log_start_offset, diverging
                    )
            if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
                return PartitionRead(self.index, _OUT_OF_RANGE)
            if fetch_offset < limit_offset and (size_bytes_max > 0 or whole_first_batch):
                run = log.read(fetch_offset, limit_offset, max(size_bytes_max, 0), whole_first_batch=whole_first_batch)
        except OttlaError as error:
            return PartitionRead(self.index, error.error_code)
        except OSError as error:
            # Opening or reading a closed segment failed: no descriptor left, a disk that fails to read.
            _log.error("fetch.read_failed", extra=fields(partition=self.topic_partition, error=str(error)))
            return PartitionRead(self.index, _STORAGE_ERROR)
        return PartitionRead(self.index, _NONE, high_watermark, last_stable_offset, log.log_start_offset, None, (), run)

    def read_batches(self, start_offset: int, end_offset: int, size_bytes_max: int) -> FileRun | None:
        """Batches from the one that holds `start_offset`, the first one whole; for the broker's own reading.

        Unlike `read` it goes up to any `end_offset`.  Raises `OttlaError` or `OSError`.
        """
        return self._log.read(start_offset, end_offset, size_bytes_max, whole_first_batch=True)

    def ends_in_older_segment(self, fetch_offset: int) -> bool:
        """Whether a read at `fetch_offset` ends with its segment although later records are readable.

        Waiting adds nothing to such a read.
        """
        return fetch_offset < min(self.high_watermark, self._log.active_base_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record below the high watermark at or after a time."""
        return self._log.offset_for_timestamp(timestamp_ms, self.high_watermark)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record below the high watermark with the greatest timestamp there."""
        return self._log.offset_of_max_timestamp(self.high_watermark)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, its end offset), (-1, -1) when `epoch` was never known."""
        return self._log.epoch_end_offset(epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was appended, -1 when it is not known."""
        return self._log.epoch_of(offset)

    # --- parking and waking -----------------------------------------------------------------------------------

    @property
    def waiting_produces_count(self) -> int:
        """Batches of which a produce request waits for the acknowledgement."""
        return len(self._parked_for_leader or ()) + len(self._parked_for_all or ())

    @property
    def has_waiting_produces(self) -> bool:
        return bool(self._parked_for_leader or self._parked_for_all)

    def park_produce(self, required_end: int, acks: int, produce: WaitingProduce, slot: int) -> None:
        """Release `slot` of `produce` once its `acks` is met up to `required_end`, as `append` gave it.

        acks=1 is met at this replica's stable end, acks=all at the high watermark.
        """
        if acks == ACKS_ALL:
            assert required_end > self.high_watermark
            parked = self._parked_for_all
            if parked is None:
                parked = self._parked_for_all = ParkedProduces()
        else:
            assert required_end > self._log.stable_end
            parked = self._parked_for_leader
            if parked is None:
                parked = self._parked_for_leader = ParkedProduces()
        parked.append((required_end, produce, slot))

    def park_fetch(self, fetch: WaitingFetch, wake_on: WakeOn = WakeOn.HIGH_WATERMARK) -> None:
        """Wake `fetch` at each move of what it waits for, until `forget_fetch`."""
        if wake_on is WakeOn.HIGH_WATERMARK:
            self._watermark_waiters[fetch] = None
            return
        if self._append_waiters is None:
            self._append_waiters = {}
        self._append_waiters[fetch] = None

    def forget_fetch(self, fetch: WaitingFetch) -> None:
        self._watermark_waiters.pop(fetch, None)
        if self._append_waiters:
            self._append_waiters.pop(fetch, None)

    def wake_fetches(self) -> None:
        """Wake every parked fetch: the log start moved, or another change that readers see."""
        _wake(self._watermark_waiters)
        if self._append_waiters:
            _wake(self._append_waiters)

    def expire_produces(self, now_ms: int) -> None:
        """Answer the produces whose time-out has passed, by the monotonic clock."""
        for parked in (self._parked_for_leader, self._parked_for_all):
            if parked:
                parked.expire(now_ms)

    def fail_waiting(self, error_code: int) -> None:
        """Answer every request that waits: the log's directory failed, or the partition leaves this broker."""
        for parked in (self._parked_for_leader, self._parked_for_all):
            if parked:
                parked.fail_all(error_code)
        self.wake_fetches()

    def _on_stable(self) -> None:
        """This replica's stable end moved."""
        if self._parked_for_leader:
            self._parked_for_leader.release(self._log.stable_end)
        if self.role is _LEADER:
            self._move_high_watermark()

    def _move_high_watermark(self) -> None:
        """The leader's high watermark is the least stable end of the in-sync replicas: of this one alone, its own."""
        high_watermark = self._log.stable_end
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        if self._parked_for_all:
            self._parked_for_all.release(high_watermark)
        if self._watermark_waiters:
            _wake(self._watermark_waiters)


def _wake(waiters: dict[WaitingFetch, None]) -> None:
    # A copy: a fetch that is woken may forget its partitions.
    for fetch in list(waiters):
        fetch.on_readable()
