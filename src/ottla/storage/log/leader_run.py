"""A run of batches that a leader sent to a follower: checked as a whole before any of it is written.

The leader assigned the offsets and stamped the epochs; a follower keeps both and requires that they continue its log.
No checksum covers these two, so they are compared with what the log has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.records.checksum import crc32c
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES, MAGIC
from ottla.storage.checkpoints import EpochStart
from ottla.storage.errors import CorruptRun, RunDoesNotFollow

_LENGTH_MIN: Final = BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES
_OFFSET_MAX: Final = 2**63 - 2


class LeaderRun(NamedTuple):
    """What a run holds: its whole batches, without one at the end that the answer's size limit cut."""

    size_bytes: int
    base_offset: int
    end_offset: int
    # Of the epochs above the log's last one.
    epoch_starts: list[EpochStart]
    has_producers: bool
    has_gaps: bool


def check_run(
    run: memoryview, log_end_offset: int, last_epoch: int, *, may_have_gaps: bool, may_begin_below: bool
) -> LeaderRun:
    """Check every whole batch of a run that is not empty.

    `may_begin_below`: the first batch may start below the log end if it holds it.  Raises `CorruptRun`, also when not
    even the first batch is whole, and `RunDoesNotFollow`.
    """
    position = 0
    size_bytes = len(run)
    next_offset = log_end_offset
    epoch_starts: list[EpochStart] = []
    has_producers = has_gaps = False
    unpack_from = HEADER.unpack_from
    while size_bytes - position >= BATCH_OVERHEAD_BYTES:
        head = unpack_from(run, position)
        length_bytes = head[1]
        end = position + LOG_OVERHEAD_BYTES + length_bytes
        if length_bytes < _LENGTH_MIN or head[3] != MAGIC or head[6] < 0:
            raise CorruptRun(position, _problem_of(head))
        if end > size_bytes:
            break
        if crc32c(run[position + ATTRIBUTES_AT : end]) != head[4]:
            raise CorruptRun(position, "its checksum is wrong")
        if head[0] != next_offset:
            holds_end = 0 <= head[0] < next_offset <= head[0] + head[6] and may_begin_below and not position
            is_above = next_offset < head[0] <= _OFFSET_MAX - head[6] and may_have_gaps
            if not holds_end and not is_above:
                raise RunDoesNotFollow(
                    f"the leader sent a batch with base offset {head[0]}, this log continues at {next_offset}"
                )
            has_gaps = has_gaps or is_above
        if head[2] != last_epoch:
            if head[2] < last_epoch:
                raise RunDoesNotFollow(
                    f"the leader sent a batch of leader epoch {head[2]} at offset {head[0]}, after one of {last_epoch}"
                )
            last_epoch = head[2]
            epoch_starts.append(EpochStart(last_epoch, head[0]))
        if head[9] >= 0:
            has_producers = True
        next_offset = head[0] + head[6] + 1
        position = end
    if not position:
        raise CorruptRun(0, f"{size_bytes} bytes do not hold one whole batch")
    base_offset: int = unpack_from(run, 0)[0]
    return LeaderRun(position, base_offset, next_offset, epoch_starts, has_producers, has_gaps)


def _problem_of(head: tuple[int, ...]) -> str:
    if head[3] != MAGIC:
        return f"magic byte {head[3]} instead of {MAGIC}"
    if head[1] < _LENGTH_MIN:
        return f"a batch length of {head[1]} bytes, shorter than its own head"
    return f"a last offset delta of {head[6]}"
