"""One entry of the topic of lost offsets: a range that a reader skipped.  JSON, with a key for its partition.

A task that is tried again, or a batch that is replayed, writes its entries again: they are equal but for `seen_ms`, and
`identity` says so.  Nothing is compacted away, since a partition can lose several ranges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition, topic_name_problem, uuid_from_text, uuid_to_text
from ottla.model.limits import INT64_MAX

# The end of a deleted topic is not known any more.
UNKNOWN_END: Final = -1
# A longer text is cut when it is written, and a larger entry is of another program.
REASON_LENGTH_MAX: Final = 1_000
ENTRY_BYTES_MAX: Final = 16_384
_PARTITION_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets `[first_offset, end_offset)` of a partition, and why they cannot be read.

    `topic_id` is all zeros where it is not known.  `end_offset` is `UNKNOWN_END` for a topic that is gone.
    """

    topic: str
    topic_id: UUID
    partition: int
    first_offset: int
    end_offset: int
    reason: str

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        end = "the end" if self.end_offset == UNKNOWN_END else f"{self.end_offset} (exclusive)"
        return f"offsets {self.first_offset} to {end} of {self.place} are gone: {self.reason}"


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """`reader`: its group id, else its client id.  `seen_ms`: when, in ms since 1970."""

    lost: LostRange
    reader: str
    seen_ms: int

    @property
    def identity(self) -> tuple[UUID, str, int, int, int, str]:
        """Equal for entries of the same loss."""
        lost = self.lost
        return lost.topic_id, lost.topic, lost.partition, lost.first_offset, lost.end_offset, self.reader


def entry_key(lost: LostRange) -> bytes:
    return f"{uuid_to_text(lost.topic_id)}:{lost.partition}".encode()


def entry_to_json(entry: LostOffsets) -> bytes:
    lost = entry.lost
    fields = {
        "topic": lost.topic,
        "topic_id": uuid_to_text(lost.topic_id),
        "partition": lost.partition,
        "first_offset": lost.first_offset,
        "end_offset": lost.end_offset,
        "reason": lost.reason[:REASON_LENGTH_MAX],
        "reader": entry.reader,
        "seen_ms": entry.seen_ms,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def entry_from_json(data: bytes) -> LostOffsets:
    """Raises WireError: the topic may have messages of other programs.  Fields that are not known are left alone."""
    if len(data) > ENTRY_BYTES_MAX:
        raise WireError(f"a ledger entry of {len(data)} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a ledger entry that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WireError("a ledger entry that is no JSON object")
    topic = _text(found, "topic")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise WireError(f"a ledger entry: {problem}")
    try:
        topic_id = uuid_from_text(_text(found, "topic_id"))
    except ValueError as error:
        raise WireError(f"a ledger entry's topic_id: {error}") from None
    first = _number(found, "first_offset", 0)
    end = _number(found, "end_offset", UNKNOWN_END)
    if UNKNOWN_END < end <= first:
        raise WireError(f"a ledger entry from offset {first} to {end}")
    lost = LostRange(
        topic, topic_id, _number(found, "partition", 0, _PARTITION_MAX), first, end, _text(found, "reason")
    )
    return LostOffsets(lost, _text(found, "reader"), _number(found, "seen_ms", 0))


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise WireError(f"a ledger entry's {name} is no text")
    return value


def _number(found: Mapping[str, object], name: str, minimum: int, maximum: int = INT64_MAX) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise WireError(f"a ledger entry's {name} is {value!r}")
    return value
