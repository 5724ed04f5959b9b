"""A shard as it is served in one leader epoch of its partition, or the error that it answers while it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.groups.loading import ShardLoading
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_log import PartitionLog
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shard import GroupShard
from ottla.groups.shared_bytes import SharedBytes
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.observe.events import fields
from ottla.runtime.clock import Moment

log = logging.getLogger(__name__)


class ServedShard:
    """`error` is COORDINATOR_LOAD_IN_PROGRESS at first, NONE once loaded, and another while the shard is suspended or
    when it has failed.
    """

    def __init__(
        self,
        partition: Partition,
        settings: GroupSettings,
        new_member_id: Callable[[str], str],
        topics: TopicsImage,
        times_of: Callable[[str], ConsumerTimes],
        member_bytes: SharedBytes,
        offset_bytes: SharedBytes,
        on_moved: Callable[[ServedShard], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_moved`: its stable end moved; `on_lost`: the partition may be another broker's now."""
        self.name = str(partition.topic_partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        # While it is loaded.
        self.loading: ShardLoading | None = None
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._on_moved = on_moved
        self._on_lost = on_lost
        self._is_lost = False
        self._is_suspended = False
        self._is_loaded = False
        self._has_failed = False
        self._log = PartitionLog(partition, self._on_stable, self._on_failed)
        self.shard = GroupShard(
            self._log,
            settings,
            new_member_id,
            topics,
            times_of,
            member_bytes,
            offset_bytes,
        )

    def serves(self, partition: Partition | None) -> bool:
        """Whether it is the shard of this partition in the leader epoch that the partition has now, and not lost."""
        is_led = partition is self.partition and self.leader_epoch == self.partition.leader_epoch
        return is_led and not self._is_lost

    @property
    def is_suspended(self) -> bool:
        return self._is_suspended

    def loaded(self, moment: Moment) -> None:
        """All records are applied, and commands are decided from now on.

        Records of an earlier epoch may not be stable yet: nothing that reveals them is answered before.
        A suspended shard serves when it is resumed.
        """
        self.loading = None
        if self._is_suspended:
            return
        self.error = ErrorCode.NONE
        self._is_loaded = True
        end_offset = self.partition.log_end_offset
        self._log.wait_for(end_offset)
        self.shard.loaded(moment, end_offset)

    def suspend(self) -> None:
        """The lease is over: answer waiting requests and all later ones with NOT_COORDINATOR, and keep the groups.

        No other broker can have written to the partition unless it was elected, and then this shard is unloaded.
        """
        if self._is_suspended or self._has_failed:
            return
        self._is_suspended = True
        self.error = ErrorCode.NOT_COORDINATOR
        if self._is_loaded:
            self.shard.suspend(ErrorCode.NOT_COORDINATOR)

    def resume(self, moment: Moment) -> None:
        """The lease was extended, in the same session and leader epoch: continue with the groups as they are."""
        if not self._is_suspended or self._has_failed:
            return
        self._is_suspended = False
        if self.loading is not None:
            self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif not self._is_loaded:
            self.loaded(moment)
        else:
            self.error = ErrorCode.NONE
            self._log.resume()
            self.shard.resume(moment)

    def fail(self, error: ErrorCode) -> None:
        """Answer waiting requests with `error`, and all later ones."""
        self.error = error
        self._has_failed = True
        self.shard.fail_all(error)

    def _on_stable(self, stable_end: int) -> None:
        self.shard.on_stable(stable_end)
        self._on_moved(self)

    def _on_failed(self, code: int) -> None:
        """No reply may wait for the last appends: the disk failed, the lease is over, or the leadership is lost."""
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            log.error("groups.failed", extra=fields(partition=self.name, error=ErrorCode(code).name))
            self.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self.partition.is_suspended_leader:
            self.suspend()
        else:
            self._is_lost = True
            self.fail(ErrorCode.NOT_COORDINATOR)
            self._on_lost()
