"""What a consumer counts: some additions for each batch that is handed out, nothing for a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.wire.request_metrics import RequestMetrics
from ottla.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """Where a partition is read.

    position        the offset of the next message; None while it is not known
    high_watermark  where the log ended at the last fetch that brought records; None before the first
    """

    position: int | None
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        """How many offsets the position was before that end; None while one of both is not known."""
        if self.position is None or self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """Of the present subscription.

    messages_count  in the batches of which a message was handed out
    batches_bytes   the size of these batches as they are stored
    buffered_bytes  fetched and not handed out yet
    partitions      those that are read now
    requests        of the fetches and of the group's member
    """

    messages_count: int
    batches_count: int
    batches_bytes: int
    buffered_bytes: int
    partitions: Mapping[TopicPartition, PartitionMetrics]
    requests: RequestMetrics
