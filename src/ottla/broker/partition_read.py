"""The result of one fetch for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.identifiers import NO_OFFSET
from ottla.runtime.disk import FileRun


class PartitionRead(NamedTuple):
    """One partition's part of a fetch response; offsets are -1 where an error leaves them unknown."""

    partition: int
    error_code: int
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    # (epoch, end offset) where the reader's history diverges from ours (KIP-595).
    diverging: tuple[int, int] | None = None
    # (producer id, first offset) of each aborted transaction that the run touches.
    aborted: Sequence[tuple[int, int]] = ()
    run: FileRun | None = None
