"""The errors that users of the client meet; each is an `OttlaError`, with a `hint` where something can be done.

Producer   BufferFull, MessageTooLarge, MessageRefused, MessageNotDelivered, MessagesNotDelivered, ProducerClosed
Consumer   PoisonMessage, NoPosition, NotAssigned, CommitFailed, ConsumerClosed
Both       ConfigError, UnknownTopic, BrokerUnreachable, BrokerRefused, CallTimedOut, OffsetOutOfRange
"""

from __future__ import annotations

from ottla.client.producing.errors import (
    BufferFull,
    MessageNotDelivered,
    MessageRefused,
    MessagesNotDelivered,
    MessageTooLarge,
    ProducerClosed,
)
from ottla.client.streams.errors import CommitFailed, ConsumerClosed, NoPosition, NotAssigned, PoisonMessage
from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable, CallTimedOut, OffsetOutOfRange, UnknownTopic
from ottla.model.errors import ConfigError, OttlaError

__all__ = [
    "BrokerRefused",
    "BrokerUnreachable",
    "BufferFull",
    "CallTimedOut",
    "CommitFailed",
    "ConfigError",
    "ConsumerClosed",
    "MessageNotDelivered",
    "MessageRefused",
    "MessageTooLarge",
    "MessagesNotDelivered",
    "NoPosition",
    "NotAssigned",
    "OffsetOutOfRange",
    "OttlaError",
    "PoisonMessage",
    "ProducerClosed",
    "UnknownTopic",
]
