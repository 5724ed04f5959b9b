"""Offsets that a reader could not read, and why: the entries of the topic `ottla-ledger`.

from ottla.lost_offsets import read_lost_offsets

for entry in read_lost_offsets("localhost:9092"):
    print(entry.lost.topic, entry.lost.partition, entry.lost.first_offset, entry.lost.end_offset, entry.lost.reason)

An entry is JSON, with a key for its partition.  A task that is tried again, or a batch that is replayed, writes its
entries again: they are equal but for `seen_ms`, and `identity` says so.  Nothing is compacted away, since a partition
can lose several ranges.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition, topic_name_problem, uuid_from_text, uuid_to_text
from ottla.model.json_fields import JsonFields
from ottla.model.limits import INT32_MAX
from ottla.model.own_names import LOST_OFFSETS_TOPIC
from ottla.observe.events import fields

__all__ = ["LOST_OFFSETS_TOPIC", "UNKNOWN_END", "LostOffsets", "LostRange", "read_lost_offsets"]

log = logging.getLogger(__name__)

# One partition keeps the order of writing, and nothing is deleted.
PARTITIONS_COUNT: Final = 1
# Or as many as there are brokers: the proof of a loss must survive one dead disk.
REPLICAS_COUNT: Final = 3
TOPIC_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# The end of a deleted topic is not known any more.
UNKNOWN_END: Final = -1
# A longer text is cut when it is written, and a larger entry is of another program.
REASON_LENGTH_MAX: Final = 1_000
ENTRY_BYTES_MAX: Final = 16_384
_ENTRY: Final = "an entry of lost offsets"


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


class LostOffsetsNotWritten(ClientError):
    """The lost ranges are not stored, so nothing after them may be read."""

    is_retriable = True
    hint = "the read can be repeated; the topic of lost offsets must be writable"


def write_losses(cluster: Cluster, topic: str, reader: str, losses: Sequence[LostRange]) -> None:
    """Returns when all in-sync replicas have the entries.

    The topic is created unless it is there, with three replicas, or as many as there are brokers.
    Raises ClientError; then any part of them may be stored, and they may be written again.
    """
    now_ms = cluster.clock.now_ms()
    rows = [(entry_key(lost), entry_to_json(LostOffsets(lost, reader, now_ms))) for lost in losses]
    log_of_losses = TopicLog(cluster, topic)
    log_of_losses.ensure(PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS)
    try:
        log_of_losses.append(rows, timeout_ms=cluster.options.call_timeout_ms)
    except NotAppended as error:
        raise LostOffsetsNotWritten(f"{len(losses)} lost ranges were not written to {topic}: {error}") from error


def read_lost_offsets(
    bootstrap: str | Cluster,
    topic: str = LOST_OFFSETS_TOPIC,
    *,
    security: ClientSecurity | Mapping[str, object] | None = None,
) -> list[LostOffsets]:
    """The entries up to the topic's end as it is now, in the order of their first writing, each once.

    None when there is no such topic: nothing was lost.  `security`, of the connection to an address: settings by
    Kafka's names, or a `ClientSecurity`.  Raises ClientError.
    """
    if isinstance(bootstrap, Cluster):
        return _read(bootstrap, topic)
    with Cluster(bootstrap, ClientOptions(security=given_security(security))) as cluster:
        return _read(cluster, topic)


def _read(cluster: Cluster, topic: str) -> list[LostOffsets]:
    entries: dict[object, LostOffsets] = {}
    for message in TopicLog(cluster, topic).read():
        entry = _parsed(topic, message.value)
        if entry is not None:
            entries.setdefault(entry.identity, entry)
    return list(entries.values())


def _parsed(topic: str, value: bytes | None) -> LostOffsets | None:
    try:
        return entry_from_json(value or b"")
    except WireError as error:
        log.warning("lost_offsets.entry_refused", extra=fields(topic=topic, error=str(error)))
        return None


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
    entry = JsonFields(_ENTRY, data, ENTRY_BYTES_MAX)
    topic = entry.text("topic")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise WireError(f"{_ENTRY}: {problem}")
    try:
        topic_id = uuid_from_text(entry.text("topic_id"))
    except ValueError as error:
        raise WireError(f"{_ENTRY}: topic_id: {error}") from None
    first = entry.number("first_offset", 0)
    end = entry.number("end_offset", UNKNOWN_END)
    if UNKNOWN_END < end <= first:
        raise WireError(f"{_ENTRY} from offset {first} to {end}")
    partition = entry.number("partition", 0, INT32_MAX)
    lost = LostRange(topic, topic_id, partition, first, end, entry.text("reason"))
    return LostOffsets(lost, entry.text("reader"), entry.number("seen_ms", 0))


# The names of earlier releases.
LEDGER_TOPIC = LOST_OFFSETS_TOPIC
LedgerEntry = LostOffsets
read_ledger = read_lost_offsets
