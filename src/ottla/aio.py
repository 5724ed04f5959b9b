"""Ottla's client for asyncio: the same as `ottla`'s, with `await` and `async for`.

Producer            sends messages                    ottla.client.producing.aio_producer
Consumer            messages of a group, polled       ottla.client.streams.aio_consumer
ConsumerConnector   a group's messages, as streams    ottla.client.streams.aio_connector
MessageStream       one of these streams              ottla.client.streams.aio_connector
"""

from __future__ import annotations

from ottla.client.producing.aio_producer import Producer
from ottla.client.streams.aio_connector import ConsumerConnector, MessageStream
from ottla.client.streams.aio_consumer import Consumer

__all__ = ["Consumer", "ConsumerConnector", "MessageStream", "Producer"]
