"""The stored state of a mirror: keys and values of a compacted topic on the target.  Pure.

["claim", topic]                                                where a topic of the target comes from
["progress", cluster id, topic id, topic, partition]            how far a partition of the source is copied
["offsets", cluster id, topic id, topic, partition, first]      runs of its offset map, from `first` on
["owner", cluster id, topic id, topic, partition]               its owner: the newest entry; the one before stops

A write may be cut anywhere: runs come before the progress that covers them, and those beyond it are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from ottla.mirror.audit_commits import AuditCommit, AuditState
from ottla.mirror.offset_translation import OffsetTranslation, Run
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

_CLAIM: Final = "claim"
_PROGRESS: Final = "progress"
_OFFSETS: Final = "offsets"
_OWNER: Final = "owner"
# The field of `AuditState.unpublished` in stored journals.
_UNPUBLISHED: Final = "untold"

Entry = tuple[bytes, bytes | None]


class UnreadableJournal(OttlaError):
    hint = "the topic is the mirror's own: something else has written to it, or a newer version of Ottla"


class SourcePartition(NamedTuple):
    """A partition for as long as its topic lives.  `topic_id` is all zeros where the source has no ids."""

    cluster_id: str
    topic_id: UUID
    topic: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class CopyClaim:
    """The topic of this name on the target is the copy of one topic.  `origin_cluster_ids`: where its records have
    been, the first cluster first; the last is the source."""

    topic: str
    target_topic_id: UUID
    source_topic_id: UUID
    origin_cluster_ids: tuple[str, ...]
    claimed_ms: int

    @property
    def source_cluster_id(self) -> str:
        return self.origin_cluster_ids[-1]


@dataclass(frozen=True, slots=True)
class Counts:
    """Since the first copy of the partition.

    rebuilt_batches     batches that could not stay as they were: with gaps, or stamped by the source
    duplicate_records   records that are on the target twice
    foreign_records     records on the target of another writer
    lost_offsets        offsets that the source deleted before they were copied
    recopied_records    records that the target had lost and that were copied again
    """

    records: int = 0
    size_bytes: int = 0
    batches: int = 0
    rebuilt_batches: int = 0
    duplicate_records: int = 0
    foreign_records: int = 0
    lost_offsets: int = 0
    recopied_records: int = 0

    def plus(self, other: Counts) -> Counts:
        return self._with(other, 1)

    def minus(self, other: Counts) -> Counts:
        return self._with(other, -1)

    def _with(self, other: Counts, sign: int) -> Counts:
        mine, others = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + sign * others[name] for name in mine})


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Everything of the source below `source_end` is on the target below `target_end`; both are exclusive.
    `audit` None: no counts of this partition for the audit."""

    source_end: int
    target_end: int
    target_topic_id: UUID
    counts: Counts = field(default_factory=Counts)
    updated_ms: int = 0
    audit: AuditState | None = None


class MirrorJournal:
    """The state after all entries so far; the same for a replay and for the mirror's own writes."""

    def __init__(self) -> None:
        self.claims: dict[str, CopyClaim] = {}
        self.progress: dict[SourcePartition, CopyProgress] = {}
        self.owners: dict[SourcePartition, str] = {}
        self._runs: dict[SourcePartition, dict[int, list[Run]]] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Raises UnreadableJournal."""
        try:
            kind, *rest = json.loads(key or b"null")
            content = None if value is None else json.loads(value)
            if kind == _CLAIM:
                self._apply_claim(rest[0], content)
            elif kind == _PROGRESS:
                self._apply_progress(_partition(rest), content)
            elif kind == _OFFSETS:
                self._apply_runs(_partition(rest), int(rest[4]), content)
            elif kind == _OWNER:
                self._apply_owner(_partition(rest), content)
            else:
                raise ValueError(f"it is of the kind {kind!r}")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError) as error:
            raise UnreadableJournal(f"the mirror's record with the key {key!r} cannot be read: {error}") from error

    def offset_translation(self, partition: SourcePartition) -> OffsetTranslation | None:
        """None where the partition was never copied."""
        progress = self.progress.get(partition)
        if progress is None:
            return None
        runs = [run for _, chunk in sorted(self._runs.get(partition, {}).items()) for run in chunk]
        offsets = OffsetTranslation(progress.source_end, progress.target_end, runs)
        # Runs beyond the progress: it was to follow them, and the writer was killed.
        offsets.truncate_source(progress.source_end)
        return offsets

    def stored_chunks(self, partition: SourcePartition) -> Mapping[int, tuple[Run, ...]]:
        """Chunks by the source offset in their key, in order."""
        return {first: tuple(runs) for first, runs in sorted(self._runs.get(partition, {}).items())}

    def _apply_claim(self, topic: str, content: dict[str, object] | None) -> None:
        if content is None:
            self.claims.pop(topic, None)
            return
        origins = content["origin_cluster_ids"]
        assert isinstance(origins, list)
        self.claims[topic] = CopyClaim(
            topic,
            UUID(str(content["target_topic_id"])),
            UUID(str(content["source_topic_id"])),
            tuple(map(str, origins)),
            int(str(content["claimed_ms"])),
        )

    def _apply_progress(self, partition: SourcePartition, content: dict[str, object] | None) -> None:
        if content is None:
            self.progress.pop(partition, None)
            return
        counts = content["counts"]
        assert isinstance(counts, dict)
        known = {name: int(count) for name, count in counts.items() if name in Counts.__slots__}
        self.progress[partition] = CopyProgress(
            int(str(content["source_end"])),
            int(str(content["target_end"])),
            UUID(str(content["target_topic_id"])),
            Counts(**known),
            int(str(content["updated_ms"])),
            _audit(content.get("audit")),
        )

    def _apply_owner(self, partition: SourcePartition, content: dict[str, object] | None) -> None:
        if content is None:
            self.owners.pop(partition, None)
        else:
            self.owners[partition] = str(content["owner"])

    def _apply_runs(self, partition: SourcePartition, first: int, content: list[list[int]] | None) -> None:
        if content is None:
            self._runs.get(partition, {}).pop(first, None)
        else:
            self._runs.setdefault(partition, {})[first] = [Run(*map(int, row)) for row in content]


def _partition(rest: list[object]) -> SourcePartition:
    cluster_id, topic_id, topic, partition = rest[:4]
    return SourcePartition(str(cluster_id), UUID(str(topic_id)), str(topic), int(str(partition)))


def _audit(content: object) -> AuditState | None:
    if content is None:
        return None
    assert isinstance(content, dict)
    found = content[_UNPUBLISHED]
    commit = None
    if found is not None:
        commit = AuditCommit(
            int(found["first"]), int(found["end"]), _windows(found["windows"]), int(found["closed_ms"])
        )
    return AuditState(int(content["first"]), _windows(content["windows"]), commit)


def _windows(content: dict[str, int]) -> dict[int, int]:
    return {int(start_ms): int(count) for start_ms, count in content.items()}


def claim_entry(claim: CopyClaim) -> Entry:
    content = {
        "target_topic_id": str(claim.target_topic_id),
        "source_topic_id": str(claim.source_topic_id),
        "origin_cluster_ids": list(claim.origin_cluster_ids),
        "claimed_ms": claim.claimed_ms,
    }
    return _encoded([_CLAIM, claim.topic]), _encoded(content)


def withdrawal_entry(topic: str) -> Entry:
    return _encoded([_CLAIM, topic]), None


def owner_entry(partition: SourcePartition, owner: str) -> Entry:
    return _encoded([_OWNER, *_key_of(partition)]), _encoded({"owner": owner})


def progress_entries(
    partition: SourcePartition, progress: CopyProgress, offsets: OffsetTranslation, journal: MirrorJournal
) -> list[Entry]:
    """The entries that bring the journal up to date; the journal is correct after each of them.  Folds the map.

    The progress is the last.  Where stored runs do not hold any more, it goes back to the last that does, first of all.
    """
    key = [*_key_of(partition)]
    stored, known = journal.stored_chunks(partition), journal.progress.get(partition)
    ends = offsets.ends_of_agreement(stored.values())
    # Not before: what was copied otherwise than it is stored cannot be seen behind a landmark.
    offsets.fold()
    chunks = {chunk[0].source_first: chunk for chunk in offsets.chunks()}
    entries: list[Entry] = []
    if known is not None and known.target_topic_id != progress.target_topic_id:
        entries.append(_progress_entry(key, progress))
    elif known is not None and ends is not None:
        source_end, target_end = ends
        known = replace(known, source_end=source_end, target_end=target_end)
        entries.append(_progress_entry(key, known))
    entries += [
        (_encoded([_OFFSETS, *key, first]), _encoded(chunk))
        for first, chunk in chunks.items()
        if stored.get(first) != chunk
    ]
    # After those: a chunk that became a landmark is not missed before the landmark is there.
    entries += [(_encoded([_OFFSETS, *key, first]), None) for first in stored if first not in chunks]
    entries.append(_progress_entry(key, progress))
    return entries


def _progress_entry(key: list[object], progress: CopyProgress) -> Entry:
    content = {
        "source_end": progress.source_end,
        "target_end": progress.target_end,
        "target_topic_id": str(progress.target_topic_id),
        "counts": asdict(progress.counts),
        "updated_ms": progress.updated_ms,
        "audit": None if progress.audit is None else _audit_content(progress.audit),
    }
    return _encoded([_PROGRESS, *key]), _encoded(content)


def _audit_content(state: AuditState) -> dict[str, object]:
    unpublished = None if state.unpublished is None else asdict(state.unpublished)
    return {"first": state.first, "windows": state.windows, _UNPUBLISHED: unpublished}


def _key_of(partition: SourcePartition) -> Iterable[object]:
    return partition.cluster_id, str(partition.topic_id), partition.topic, partition.partition


def _encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
