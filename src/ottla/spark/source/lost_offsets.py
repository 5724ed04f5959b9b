"""What a log proves to be lost.  Pure: time is no proof, and a broker that does not answer proves nothing."""

from __future__ import annotations


def lost_until(position: int, end: int, log: range) -> int | None:
    """The offset up to which `[position, end)` is gone, given the readable offsets of the log; None: nothing is proven.

    The plan saw every offset below `end` in the log, so a log that ends before lost them (a topic that was recreated,
    or a truncation), and one that starts behind `position` deleted them.  Logs that answer ListOffsets do not go back
    by themselves (KIP-207).
    """
    if position < log.start:
        return min(log.start, end)
    if position >= log.stop and log.stop < end:
        return end
    return None
