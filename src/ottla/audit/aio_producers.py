"""The same counts for the producer of coroutines."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from ottla.audit.count import PRODUCER
from ottla.audit.producers import INTERVAL_MS, AcknowledgedCounts
from ottla.client.producing.aio_producer import Producer
from ottla.client.producing.errors import MessagesNotDelivered
from ottla.model.own_names import AUDIT_TOPIC
from ottla.model.windows import DEFAULT_WINDOW_MS


class AioProducerAudit:
    """`ottla.audit.ProducerAudit` for an `ottla.aio.Producer`.

    async with ottla.aio.Producer("localhost:9092") as producer, AioProducerAudit(producer):
        await producer.send("page-views", b"/jobs")
    """

    def __init__(
        self,
        producer: Producer[Any, Any],
        *,
        tier: str = PRODUCER,
        window_ms: int = DEFAULT_WINDOW_MS,
        interval_ms: float = INTERVAL_MS,
        audit_topic: str = AUDIT_TOPIC,
    ) -> None:
        self._producer = producer
        self._counts = AcknowledgedCounts(
            producer, tier=tier, window_ms=window_ms, interval_ms=interval_ms, audit_topic=audit_topic
        )

    async def __aenter__(self) -> AioProducerAudit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(self, timeout_ms: float | None = None) -> None:
        """Publish the counts of acknowledged messages now.  Raises ClientError; the counts are kept then."""
        await asyncio.to_thread(self._counts.publish, timeout_ms=timeout_ms)

    async def close(self, timeout_ms: float | None = None) -> None:
        """As `ProducerAudit.close`."""
        has_ended = False
        try:
            await self._producer.flush(timeout_ms)
            has_ended = True
        except MessagesNotDelivered:
            has_ended = True
            raise
        finally:
            await asyncio.to_thread(self._counts.end, timeout_ms, has_ended=has_ended)
