"""Ottla: a Kafka broker that you can pip install, and the pipeline around it.

Importing this package starts nothing and imports neither pyspark nor kazoo; the client is imported when first used.

Admin               topics, groups, rights, quotas    ottla.client.admin.admin
Producer            sends messages                    ottla.client.producing.producer
Consumer            messages of a group, polled       ottla.client.streams.consumer
ConsumerConnector   a group's messages, as streams    ottla.client.streams.connector
Message             what a consumer gets              ottla.client.fetching.messages
SimpleConsumer      one partition, by offsets         ottla.client.streams.simple_consumer
TopicPartition      a partition, by topic and number  ottla.model.identifiers
ClientSecurity      TLS and SASL of a client          ottla.client.wire.security.settings
client_security     the same, from names              ottla.client.wire.security.setting_names
dedup               a stream without repetitions      ottla.client.streams.dedup

`ottla.aio` has Producer, Consumer and ConsumerConnector for asyncio, `ottla.admin` what the Admin takes and returns,
`ottla.errors` what they raise, `ottla.statistics` what they count; `ottla.interceptors` and `ottla.opentelemetry` have
code that sees messages on their way.  docs/guide/ has a page for each use of them.
"""

from __future__ import annotations

from ottla.model.version import __version__

# As of `typing`, which takes a command longer to import than this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from ottla.client.admin.admin import Admin
    from ottla.client.fetching.messages import Message
    from ottla.client.producing.producer import Producer
    from ottla.client.streams.connector import ConsumerConnector
    from ottla.client.streams.consumer import Consumer
    from ottla.client.streams.dedup import dedup
    from ottla.client.streams.simple_consumer import SimpleConsumer
    from ottla.client.wire.security.setting_names import client_security
    from ottla.client.wire.security.settings import ClientSecurity
    from ottla.model.identifiers import TopicPartition

__all__ = [
    "Admin",
    "ClientSecurity",
    "Consumer",
    "ConsumerConnector",
    "Message",
    "Producer",
    "SimpleConsumer",
    "TopicPartition",
    "__version__",
    "client_security",
    "dedup",
]

# Where the public names are.
_HOMES: Final = {
    "Admin": "ottla.client.admin.admin",
    "ClientSecurity": "ottla.client.wire.security.settings",
    "Consumer": "ottla.client.streams.consumer",
    "ConsumerConnector": "ottla.client.streams.connector",
    "Message": "ottla.client.fetching.messages",
    "Producer": "ottla.client.producing.producer",
    "SimpleConsumer": "ottla.client.streams.simple_consumer",
    "TopicPartition": "ottla.model.identifiers",
    "client_security": "ottla.client.wire.security.setting_names",
    "dedup": "ottla.client.streams.dedup",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
