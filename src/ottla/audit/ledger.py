"""The ledger: the ranges of offsets that a reader could not read, and why; in the topic `ottla-ledger`.

A range is written, and confirmed, before its reader goes on behind it.  An entry that comes again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from ottla.audit.count import NO_TOPIC_ID
from ottla.audit.topic import read_values, store
from ottla.client.cluster import Cluster
from ottla.model.errors import WireError
from ottla.model.identifiers import topic_name_problem
from ottla.model.limits import INT64_MAX

LEDGER_TOPIC: Final = "ottla-ledger"
ENTRY_BYTES_MAX: Final = 64 * 1024


class LostRange(NamedTuple):
    """Offsets `first_offset` to before `end_offset` that `reader` could not read.  `topic_id` all zeros: unknown."""

    topic: str
    topic_id: UUID
    partition: int
    first_offset: int
    end_offset: int
    reason: str
    reader: str
    seen_ms: int

    @property
    def offsets_count(self) -> int:
        return self.end_offset - self.first_offset


def entry_to_json(entry: LostRange) -> bytes:
    topic_id = None if entry.topic_id == NO_TOPIC_ID else str(entry.topic_id)
    return json.dumps(entry._asdict() | {"topic_id": topic_id}, separators=(",", ":")).encode()


def entry_from_json(data: bytes) -> LostRange:
    """Raises WireError."""
    try:
        found = json.loads(data) if len(data) <= ENTRY_BYTES_MAX else None
        if not isinstance(found, dict):
            raise WireError("a ledger entry that is no JSON object")
        texts = [found[name] for name in ("topic", "reason", "reader")]
        numbers = [found[name] for name in ("partition", "first_offset", "end_offset", "seen_ms")]
        topic_id = UUID(found["topic_id"]) if found.get("topic_id") else NO_TOPIC_ID
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"a ledger entry cannot be read: {error!r}") from None
    if not all(isinstance(each, str) for each in texts) or topic_name_problem(texts[0]) is not None:
        raise WireError("a ledger entry's topic, reason or reader is no text")
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= INT64_MAX for each in numbers):
        raise WireError("a ledger entry's partition, offsets or time is no whole number")
    topic, reason, reader = texts
    partition, first_offset, end_offset, seen_ms = numbers
    if first_offset >= end_offset:
        raise WireError(f"a ledger entry's range from {first_offset} to {end_offset} is empty")
    return LostRange(topic, topic_id, partition, first_offset, end_offset, reason, reader, seen_ms)


def distinct(entries: Iterable[LostRange]) -> list[LostRange]:
    """By topic, partition and offset; what a reader wrote again, as after a failed attempt, stands there once."""
    first_seen: dict[tuple[object, ...], LostRange] = {}
    for entry in entries:
        key = entry[:-1]
        if key not in first_seen or entry.seen_ms < first_seen[key].seen_ms:
            first_seen[key] = entry
    return sorted(first_seen.values(), key=lambda entry: (entry.topic, entry.partition, entry.first_offset, entry))


def read_ledger(cluster: Cluster, name: str = LEDGER_TOPIC) -> list[LostRange]:
    """What all readers have written by now; nothing where there is no such topic.  What is no entry is left out."""
    entries: list[LostRange] = []
    for value in read_values(cluster, name, {}):
        try:
            entries.append(entry_from_json(value or b""))
        except WireError:
            continue
    return distinct(entries)


def write_ledger(
    cluster: Cluster, entries: Iterable[LostRange], name: str = LEDGER_TOPIC, *, timeout_ms: float | None = None
) -> None:
    """Store the entries on all in-sync replicas.  Raises ClientError: then the reader must not go on."""
    # The topic keeps entries by their keys, so the range is a part of it.
    rows = (
        (f"{entry.topic_id}:{entry.partition}:{entry.first_offset}:{entry.end_offset}".encode(), entry_to_json(entry))
        for entry in entries
    )
    store(cluster, rows, name, timeout_ms=timeout_ms)
