"""A shard as it is served: with its partition's log, and the error that stands in for it while it cannot decide."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.groups.partition_log import PartitionLog
from ottla.broker.partition import Partition
from ottla.groups.member_bytes import MemberBytes
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shard import GroupShard
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.observe.events import fields

log = logging.getLogger(__name__)


class ServedShard:
    """`error` is COORDINATOR_LOAD_IN_PROGRESS at first, NONE once loaded, and another when the shard is of no use."""

    def __init__(
        self,
        partition: Partition,
        settings: GroupSettings,
        new_member_id: Callable[[str], str],
        topics: TopicsImage,
        times_of: Callable[[str], ConsumerTimes],
        member_bytes: MemberBytes,
        on_moved: Callable[[ServedShard], None],
    ) -> None:
        self.name = str(partition.topic_partition)
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._on_moved = on_moved
        self.shard = GroupShard(
            PartitionLog(partition, self._on_stable, self._on_failed),
            settings,
            new_member_id,
            topics,
            times_of,
            member_bytes,
        )

    def fail(self, error: ErrorCode) -> None:
        """Answer what waits with `error`, and everything from now on."""
        self.error = error
        self.shard.fail_all(error)

    def _on_stable(self, stable_end: int) -> None:
        self.shard.on_stable(stable_end)
        self._on_moved(self)

    def _on_failed(self, code: int) -> None:
        """The disk failed under what waits, or the partition leaves this broker."""
        log.error("groups.failed", extra=fields(partition=self.name, error=ErrorCode(code).name))
        self.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
