"""What consumers of several clients hand out, as messages of ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.client.fetching.messages import Message
from ottla.model.identifiers import NO_TIMESTAMP
from ottla.records.record import Headers


def received(message: Any) -> Message:
    """A message of ottla, of confluent-kafka, or a record of kafka-python or aiokafka.

    Raises `TypeError` for anything else, and where key or value are not the bytes that were read.
    """
    if isinstance(message, Message):
        found = Message(*message)
    elif callable(getattr(message, "topic", None)) and callable(getattr(message, "offset", None)):
        found = _of_confluent(message)
    elif isinstance(getattr(message, "topic", None), str) and hasattr(message, "offset"):
        stamp = message.timestamp
        found = Message(
            message.topic,
            message.partition,
            message.offset,
            NO_TIMESTAMP if stamp is None else stamp,
            message.key,
            message.value,
            _headers(message.headers),
        )
    else:
        raise TypeError(
            f"a dead letter is made of a message of ottla, confluent-kafka, kafka-python or aiokafka, "
            f"not of {type(message).__name__}"
        )
    for name, content in (("key", found.key), ("value", found.value)):
        if content is not None and not isinstance(content, bytes):
            raise TypeError(
                f"the {name} of {found.topic}-{found.partition}, offset {found.offset}, is {type(content).__name__}: "
                "a dead letter keeps the bytes that were read, so deserialize after the consumer"
            )
    return found


def _of_confluent(message: Any) -> Message:
    if message.error() is not None:
        raise TypeError(f"this is no message but an error of the consumer: {message.error()}")
    _, stamp_ms = message.timestamp()
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        stamp_ms,
        message.key(),
        message.value(),
        _headers(message.headers()),
    )


def _headers(pairs: Iterable[tuple[str, bytes | None]] | None) -> Headers:
    return tuple((name, content) for name, content in pairs or ())
