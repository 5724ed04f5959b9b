"""Gaps in the sequences of idempotent producers: which of them are only the rest of a pipeline.

A producer has several requests on their way.  When one of them is refused for a passing reason (no lease, too few
replicas in sync, no room, no leader yet) and the next one arrives when that has passed, it does not follow what the log
has.  The producer will send all of them again, in order, so the right answer is one that only makes it do that:

* librdkafka answers OUT_OF_ORDER_SEQUENCE_NUMBER with another producer epoch for all its partitions, and stores twice
  what it has in flight to others (its issue 4953);
* a producer that the log does not know may begin anywhere, as in Apache Kafka, since it may have been forgotten.  Taken
  here, the second batch would be stored without the first one, and librdkafka takes its acknowledgement for that of
  both: an acknowledged batch would be lost.
"""

from __future__ import annotations

from typing import Final

# How long after a refusal a gap is taken for the rest of a pipeline: longer than what was sent before a client read the
# refusal can be on its way, and short beside the time-outs of producers, which begin at a minute.
GAP_PATIENCE_MS: Final = 10_000


class SequenceGaps:
    """When a partition's leader refused a batch last that its producer sends again.  Times are the wall clock's."""

    __slots__ = ("_is_new_leader", "_refused_ms")

    def __init__(self) -> None:
        self._refused_ms: int | None = None
        self._is_new_leader = False

    def on_leading(self) -> None:
        """The partition is led here from now on: earlier requests were refused, here or at another broker."""
        self._is_new_leader = True

    def on_refused(self, now_ms: int) -> None:
        """A batch was refused for a reason that passes."""
        self._refused_ms = now_ms

    def is_rest_of_pipeline(self, now_ms: int) -> bool:
        """Whether a gap that is met now may come from such a refusal.

        The first gap under a new leader always may: the time runs from there on.
        """
        if self._is_new_leader:
            self._is_new_leader = False
            self._refused_ms = now_ms
        return self._refused_ms is not None and 0 <= now_ms - self._refused_ms < GAP_PATIENCE_MS
