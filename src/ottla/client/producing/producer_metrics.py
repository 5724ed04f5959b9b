"""What a producer counts: some additions for each batch, nothing for a message."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.wire.request_metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """Since the producer was opened.

    messages_stored_count    those that were acknowledged; with acks 0 those that were sent
    messages_failed_count    those that were refused, or whose fate is not known
    batches_count            batches that were encoded
    messages_bytes           keys, values and headers in them
    batches_bytes            their size as they are sent
    unsettled_batches_count  batches without an outcome, open ones included
    buffered_bytes           what they take of `buffer_bytes`
    """

    messages_stored_count: int
    messages_failed_count: int
    batches_stored_count: int
    batches_failed_count: int
    batches_count: int
    messages_bytes: int
    batches_bytes: int
    unsettled_batches_count: int
    buffered_bytes: int
    requests: RequestMetrics

    @property
    def compression_ratio(self) -> float:
        """Bytes that are sent for each byte of keys, values and headers; 0 before the first batch."""
        return self.batches_bytes / self.messages_bytes if self.messages_bytes else 0.0


class BatchMeter:
    """Of the thread that sends, which counts; other threads may read."""

    def __init__(self) -> None:
        self.stored_messages_count = 0
        self.failed_messages_count = 0
        self.stored_batches_count = 0
        self.failed_batches_count = 0
        self.batches_count = 0
        self.messages_bytes = 0
        self.batches_bytes = 0

    def on_encoded(self, messages_bytes: int, batch_bytes: int) -> None:
        self.batches_count += 1
        self.messages_bytes += messages_bytes
        self.batches_bytes += batch_bytes

    def on_settled(self, messages_count: int, *, is_stored: bool) -> None:
        if is_stored:
            self.stored_batches_count += 1
            self.stored_messages_count += messages_count
        else:
            self.failed_batches_count += 1
            self.failed_messages_count += messages_count

    def snapshot(self, unsettled_batches_count: int, buffered_bytes: int, requests: RequestMetrics) -> ProducerMetrics:
        return ProducerMetrics(
            messages_stored_count=self.stored_messages_count,
            messages_failed_count=self.failed_messages_count,
            batches_stored_count=self.stored_batches_count,
            batches_failed_count=self.failed_batches_count,
            batches_count=self.batches_count,
            messages_bytes=self.messages_bytes,
            batches_bytes=self.batches_bytes,
            unsettled_batches_count=unsettled_batches_count,
            buffered_bytes=buffered_bytes,
            requests=requests,
        )
