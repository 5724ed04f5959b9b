"""A counter's messages: how many records it has counted, and until when; as JSON in the topic `ottla-audit`.

A message replaces the earlier one of the same key by its higher sequence, so to send it again is harmless.  Its key is
the record's key, too: a compacted topic keeps what counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.model.errors import WireError
from ottla.model.identifiers import topic_name_problem
from ottla.model.json_fields import JsonFields
from ottla.model.limits import INT64_MIN
from ottla.model.windows import Window

PRODUCER: Final = "producer"
BROKER: Final = "broker"
LAKE: Final = "lake"
# The name of a counter's tier; tools show it as a column.
TIER_LENGTH_MAX: Final = 100
# A message has some 300 bytes; a larger one is of another program.
MESSAGE_BYTES_MAX: Final = 4096
NO_TOPIC_ID: Final = UUID(int=0)
NOT_YET_MS: Final = 0


class CountKey(NamedTuple):
    """`topic_id` is all zeros where the counter does not know it."""

    tier: str
    instance: UUID
    topic: str
    topic_id: UUID
    window: Window


class ReportKey(NamedTuple):
    tier: str
    instance: UUID
    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Count:
    """The records of a topic that one counter has counted in one window, from its begin.

    `late_records`: those of them that it met when the window had ended.  `last_seen_ms`: by its clock, when it met the
    last of them.
    """

    key: CountKey
    sequence: int
    records: int
    late_records: int
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """A counter has published everything that it counted before `until_ms`, by its clock.  `has_ended`: nothing will
    follow.

    `counters_count`: the topic has exactly so many counters of this tier, one for each partition, and each of them has
    a successor when it dies; 0 for counters that come and go.  Then `until_ms` is `NOT_YET_MS` until it has come to
    its partition's end once.
    """

    key: ReportKey
    sequence: int
    until_ms: int
    has_ended: bool = False
    counters_count: int = 0


AuditMessage: TypeAlias = Count | Report


def key_bytes(message: AuditMessage) -> bytes:
    """The key of its record: equal for messages of which the newest counts."""
    key = message.key
    parts = [key.tier, str(key.instance), key.topic, str(key.topic_id)]
    if isinstance(key, CountKey):
        parts += [str(key.window.start_ms), str(key.window.size_ms)]
    return "/".join(parts).encode()


def to_json(message: AuditMessage) -> bytes:
    key = message.key
    fields: dict[str, object] = {
        "tier": key.tier,
        "topic": key.topic,
        "topic_id": None if key.topic_id == NO_TOPIC_ID else str(key.topic_id),
        "instance": str(key.instance),
        "sequence": message.sequence,
    }
    if isinstance(message, Count):
        fields |= {
            "window_start_ms": message.key.window.start_ms,
            "window_ms": message.key.window.size_ms,
            "records": message.records,
            "late_records": message.late_records,
            "last_seen_ms": message.last_seen_ms,
        }
    else:
        fields |= {"until_ms": message.until_ms, "has_ended": message.has_ended}
        if message.counters_count:
            fields["counters"] = message.counters_count
    return json.dumps(fields, separators=(",", ":")).encode()


def from_json(data: bytes) -> AuditMessage:
    """Raises WireError: the topic may have messages of other programs.  Fields that are not known are left alone."""
    fields = JsonFields("an audit message", data, MESSAGE_BYTES_MAX)
    tier, topic = fields.text("tier"), fields.text("topic")
    if not 1 <= len(tier) <= TIER_LENGTH_MAX or "/" in tier or not tier.isprintable():
        raise WireError("an audit message's tier is no name")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise WireError(f"an audit message: {problem}")
    topic_id = NO_TOPIC_ID if fields.is_null("topic_id") else fields.uuid("topic_id")
    where = ReportKey(tier, fields.uuid("instance"), topic, topic_id)
    sequence = fields.number("sequence", 0)
    if "window_ms" not in fields:
        counters_count = fields.number("counters", 0) if "counters" in fields else 0
        until_ms = fields.number("until_ms", INT64_MIN)
        return Report(where, sequence, until_ms, fields.truth("has_ended"), counters_count)
    window = Window(fields.number("window_start_ms", INT64_MIN), fields.number("window_ms", 1))
    if window.start_ms % window.size_ms:
        raise WireError(f"an audit message's window of {window.size_ms} ms begins at {window.start_ms}")
    records, late_records = fields.number("records", 0), fields.number("late_records", 0)
    if late_records > records:
        raise WireError(f"an audit message has {late_records} late records of {records}")
    last_seen_ms = fields.number("last_seen_ms", INT64_MIN)
    return Count(CountKey(*where, window), sequence, records, late_records, last_seen_ms)


class UnconfirmedMessages:
    """Messages that are sent until they have arrived: of each key the newest."""

    def __init__(self) -> None:
        self._messages: dict[bytes, AuditMessage] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[AuditMessage]:
        return iter(self._messages.values())

    def keep(self, messages: Iterable[AuditMessage]) -> None:
        """A newer message takes the place of the older one of its key."""
        self._messages.update((key_bytes(message), message) for message in messages)

    def confirm(self, messages: Iterable[AuditMessage]) -> None:
        """These have arrived; one that was replaced meanwhile changes nothing."""
        for message in messages:
            key = key_bytes(message)
            if self._messages.get(key) == message:
                del self._messages[key]
