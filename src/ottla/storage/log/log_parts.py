"""What a log is made of."""

from __future__ import annotations

from typing import NamedTuple

from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segment.segment import Segment


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
    # The topic's settings; `was_compacted` if the log's directory has the mark of a clean.
    config: LogConfig
