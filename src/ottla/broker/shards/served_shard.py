"""A shard as it is served in one leader epoch of its partition, or the error that it answers while it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.partitions.coordinator_log import CoordinatorLog
from ottla.broker.partitions.partition import Partition
from ottla.broker.shards.loading import Replayed, ShardLoading
from ottla.model.error_code import ErrorCode
from ottla.observe.events import fields
from ottla.runtime.clock import Moment

log = logging.getLogger(__name__)


class ShardEvents(NamedTuple):
    """The names of a coordinator's events in the log."""

    loaded: str
    unloaded: str
    not_loaded: str
    failed: str


class Shard(Replayed, Protocol):
    """The state of a coordinator that one partition has: `GroupShard`, `TransactionShard`."""

    def loaded(self, moment: Moment, end_offset: int = ...) -> None: ...

    def on_stable(self, stable_end: int) -> None: ...

    def on_time(self, moment: Moment) -> None: ...

    def next_due_ms(self) -> int | None: ...

    def suspend(self, error: ErrorCode) -> None: ...

    def resume(self, moment: Moment) -> None: ...

    def fail_all(self, error: ErrorCode) -> None: ...


S = TypeVar("S", bound=Shard)


class ServedShard(Generic[S]):
    """`error` is COORDINATOR_LOAD_IN_PROGRESS at first, NONE once loaded, and another while the shard is suspended or
    when it has failed.
    """

    def __init__(
        self,
        events: ShardEvents,
        partition: Partition,
        new_shard: Callable[[Partition, CoordinatorLog], S],
        on_moved: Callable[[ServedShard[S]], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_moved`: its stable end moved; `on_lost`: the partition may be another broker's now."""
        self.name = str(partition.topic_partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        # While it is loaded.
        self.loading: ShardLoading | None = None
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._events = events
        self._on_moved = on_moved
        self._on_lost = on_lost
        self._is_lost = False
        self._is_suspended = False
        self._is_loaded = False
        self._has_failed = False
        self._log = CoordinatorLog(partition, self._on_stable, self._on_failed)
        self.shard = new_shard(partition, self._log)

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
        """The lease is over: answer waiting requests and all later ones with NOT_COORDINATOR, and keep its state.

        No other broker can have written to the partition unless it was elected, and then this shard is unloaded.
        """
        if self._is_suspended or self._has_failed:
            return
        self._is_suspended = True
        self.error = ErrorCode.NOT_COORDINATOR
        if self._is_loaded:
            self.shard.suspend(ErrorCode.NOT_COORDINATOR)

    def resume(self, moment: Moment) -> None:
        """The lease was extended, in the same session and leader epoch: continue with its state as it is."""
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
            log.error(self._events.failed, extra=fields(partition=self.name, error=ErrorCode(code).name))
            self.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self.partition.is_suspended_leader:
            self.suspend()
        else:
            self._is_lost = True
            self.fail(ErrorCode.NOT_COORDINATOR)
            self._on_lost()
