"""What a log is made of, and what it needs from the directory that it lies in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log import Log


class LogHost(Protocol):
    """What a log needs from its directory."""

    def now_ms(self) -> int: ...

    def mark_dirty(self, log: Log) -> None: ...

    def mark_due(self, log: Log) -> None: ...

    def log_start_moved(self, log: Log) -> None:
        """`log_start_offset` moved and is to be checkpointed; then the removed segments' files may go."""
        ...

    def finish_swap(self) -> None:
        """Cleaned segments that are being put in place of a log's own are there when this returns."""
        ...

    def before_truncation(self, log: Log, end_offset: int) -> None:
        """The log will end at `end_offset`: the recorded flushed end must be no higher, durably, before it does."""
        ...

    def directory_failed(self, error: OSError) -> None: ...


class LogParts(NamedTuple):
    """What recovery found in a partition's directory."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    flushed_end: int
    producers: ProducerStates
    epochs: LeaderEpochs
    # The log end for which indexes and snapshot on disk are whole; -1 when they are not.
    caches_end: int
    # Of its topic, and whether its directory has the mark of a clean.
    config: LogConfig
