"""A dead letter as a record: what was read, as it was, and headers that say where and what was wrong.  Pure.

The headers are those of Kafka Connect, with its texts (numbers in decimal), and three of ours.  They follow the
record's own headers, in one order; so a letter of a letter still has the first one's as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from uuid import UUID

from ottla.client.fetching.messages import Message
from ottla.model.errors import OttlaError
from ottla.model.identifiers import uuid_from_text, uuid_to_text
from ottla.protocol.schema import ZERO_UUID
from ottla.records.record import Headers

CONNECT_PREFIX: Final = "__connect.errors."
TOPIC: Final = "__connect.errors.topic"
PARTITION: Final = "__connect.errors.partition"
OFFSET: Final = "__connect.errors.offset"
STAGE: Final = "__connect.errors.stage"
ERROR_CLASS: Final = "__connect.errors.exception.class.name"
ERROR_MESSAGE: Final = "__connect.errors.exception.message"
CLUSTER_ID: Final = "ottla.origin.cluster.id"
TOPIC_ID: Final = "ottla.origin.topic.id"
TIMESTAMP: Final = "ottla.origin.timestamp"
# Of a record that was put back: the identity of its origin.
REPLAYED_FROM: Final = "ottla.replayed.from"

LETTER_HEADERS: Final = (
    TOPIC,
    PARTITION,
    OFFSET,
    STAGE,
    ERROR_CLASS,
    ERROR_MESSAGE,
    CLUSTER_ID,
    TOPIC_ID,
    TIMESTAMP,
)

# An error's text may have the whole record in it.
ERROR_CHARS_MAX: Final = 4_000
KEY_BYTES: Final = 16


class NotADeadLetter(OttlaError):
    """A record of a dead-letter topic does not say where it comes from."""

    hint = "dead letters have the headers of Kafka Connect: __connect.errors.topic, .partition and .offset"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was read.

    `cluster_id` is empty and `topic_id` all zeros where the cluster has none, or a letter (of Kafka Connect) does not
    say.  `timestamp_ms` is the record's.
    """

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def identity(self) -> str:
        """Equal only for the same record; a topic that was deleted and recreated is another one."""
        topic = f"name:{self.topic}" if self.topic_id == ZERO_UUID else uuid_to_text(self.topic_id)
        return f"{self.cluster_id}/{topic}/{self.partition}/{self.offset}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`headers` are the record's own, `error_class` is a Python or Java class.

    `stage` says what was done with the record.
    """

    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: Headers
    error_class: str
    error_message: str
    stage: str

    @property
    def record_headers(self) -> Headers:
        """The headers of its record in the dead-letter topic."""
        origin = self.origin
        texts = (
            origin.topic,
            str(origin.partition),
            str(origin.offset),
            self.stage,
            self.error_class,
            self.error_message[:ERROR_CHARS_MAX],
            origin.cluster_id,
            uuid_to_text(origin.topic_id),
            str(origin.timestamp_ms),
        )
        ours = zip(LETTER_HEADERS, (text.encode("utf-8", "backslashreplace") for text in texts), strict=True)
        return (*self.headers, *ours)

    @property
    def replayed_headers(self) -> Headers:
        """The headers of its record when it is put back."""
        kept = tuple(each for each in self.headers if each[0] != REPLAYED_FROM)
        return (*kept, (REPLAYED_FROM, self.origin.identity.encode()))


def letter_of(message: Message) -> DeadLetter:
    """Reads letters of ours, and those of Kafka Connect.  Raises `NotADeadLetter`."""
    own, ours = _split(message.headers)
    try:
        topic = _text(ours, TOPIC)
        if not topic:
            raise ValueError(f"it has no header {TOPIC}")
        topic_id = _text(ours, TOPIC_ID)
        origin = Origin(
            _text(ours, CLUSTER_ID),
            topic,
            uuid_from_text(topic_id) if topic_id else ZERO_UUID,
            _number(ours, PARTITION),
            _number(ours, OFFSET),
            # Kafka Connect gives the letter the record's own time.
            int(_text(ours, TIMESTAMP) or message.timestamp_ms),
        )
    except ValueError as error:
        where = f"{message.topic}-{message.partition}, offset {message.offset}"
        raise NotADeadLetter(f"{where} is not a dead letter: {error}") from None
    return DeadLetter(
        origin,
        message.key,
        message.value,
        own,
        _text(ours, ERROR_CLASS),
        _text(ours, ERROR_MESSAGE),
        _text(ours, STAGE),
    )


def replay_key(target: str, identity: str) -> bytes:
    """Equal only for the same record (`Origin.identity`) put into the same topic."""
    return blake2b(f"{target}|{identity}".encode(), digest_size=KEY_BYTES).digest()


def error_class_of(error: BaseException) -> str:
    """As a traceback names it."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _split(headers: Headers) -> tuple[Headers, dict[str, bytes | None]]:
    """The record's own headers, and those of the letter."""
    first = len(headers) - len(LETTER_HEADERS)
    if first >= 0 and tuple(name for name, _ in headers[first:]) == LETTER_HEADERS:
        return headers[:first], dict(headers[first:])
    own = tuple(each for each in headers if not each[0].startswith(CONNECT_PREFIX))
    return own, {name: content for name, content in headers if name.startswith(CONNECT_PREFIX)}


def _text(headers: dict[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"").decode("utf-8", "replace")


def _number(headers: dict[str, bytes | None], name: str) -> int:
    text = _text(headers, name)
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"its header {name} is {text!r}, not a number from 0 on")
    return int(text)
