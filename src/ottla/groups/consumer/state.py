"""The state of one consumer group: its records, and indexes over them.

The state is the newest value of each record key, and only `replay` changes it, live and at start-up alike.  A compacted
log keeps the newest value of a key but not the order in which keys first appeared, so a value is kept even if it
refers to, and a member exists as soon as its own record does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.consumer.member import NOTHING_ASSIGNED, CurrentAssignment, MemberMetadata
from ottla.groups.consumer.records import (
    ConsumerRecordKey,
    ConsumerRecordType,
    ResolvedPattern,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_pattern,
    decode_target,
    decode_target_epoch,
)


class ConsumerGroupState:
    """Read it freely; change it by `replay` only."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        # The group epoch for which the targets were computed.
        self.assignment_epoch = 0
        self.members: Final[dict[str, MemberMetadata]] = {}
        self.currents: Final[dict[str, CurrentAssignment]] = {}
        self.targets: Final[dict[str, Assignment]] = {}
        self.patterns: Final[dict[str, ResolvedPattern]] = {}
        self.has_topics_record = False
        self.has_epoch_record = False
        self.has_target_epoch_record = False
        # Indexes over the above, kept up to date.
        self.static_ids: Final[dict[str, str]] = {}
        self.name_counts: Final[Counter[str]] = Counter()
        self.pattern_counts: Final[Counter[str]] = Counter()
        self.assignor_counts: Final[Counter[str]] = Counter()
        self._holders: Final[dict[UUID, dict[int, str]]] = {}

    def current(self, member_id: str) -> CurrentAssignment:
        return self.currents.get(member_id, NOTHING_ASSIGNED)

    def holder(self, topic_id: UUID, partition: int) -> str | None:
        """The member that may read the partition, or that has not yet reported its revocation."""
        return self._holders.get(topic_id, {}).get(partition)

    @property
    def name(self) -> str:
        """Empty, Assigning, Reconciling or Stable (KIP-848)."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(self.current(member_id).is_reconciled_to(self.assignment_epoch) for member_id in self.members):
            return "Stable"
        return "Reconciling"

    def record_keys(self) -> Iterator[ConsumerRecordKey]:
        """The keys that have a value, in an order in which they may be deleted: parts before the whole."""
        of_type = ConsumerRecordType
        for record_type, table in (
            (of_type.CURRENT, self.currents),
            (of_type.TARGET, self.targets),
            (of_type.MEMBER, self.members),
            (of_type.PATTERN, self.patterns),
        ):
            for part in table:
                yield ConsumerRecordKey(record_type, self.group_id, part)
        for record_type, is_there in (
            (of_type.TARGET_EPOCH, self.has_target_epoch_record),
            (of_type.TOPICS, self.has_topics_record),
            (of_type.GROUP_EPOCH, self.has_epoch_record),
        ):
            if is_there:
                yield ConsumerRecordKey(record_type, self.group_id)

    def replay(self, key: ConsumerRecordKey, value: bytes | None) -> None:
        """Apply one record.  Raises `WireError` for damaged bytes."""
        match key.type:
            case ConsumerRecordType.GROUP_EPOCH:
                self.has_epoch_record = value is not None
                self.group_epoch, self.metadata_hash = (0, 0) if value is None else decode_group_epoch(value)
            case ConsumerRecordType.TARGET_EPOCH:
                self.has_target_epoch_record = value is not None
                self.assignment_epoch = 0 if value is None else decode_target_epoch(value)
            case ConsumerRecordType.TOPICS:
                self.has_topics_record = value is not None
            case ConsumerRecordType.MEMBER:
                self._set_member(key.part, None if value is None else decode_member(value))
            case ConsumerRecordType.TARGET:
                if value is None:
                    self.targets.pop(key.part, None)
                else:
                    self.targets[key.part] = decode_target(value)
            case ConsumerRecordType.CURRENT:
                self._set_current(key.part, None if value is None else decode_current(value))
            case ConsumerRecordType.PATTERN:
                if value is None:
                    self.patterns.pop(key.part, None)
                else:
                    self.patterns[key.part] = decode_pattern(value)

    def _set_member(self, member_id: str, metadata: MemberMetadata | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._count(old, -1)
            if old.instance_id is not None and self.static_ids.get(old.instance_id) == member_id:
                del self.static_ids[old.instance_id]
        if metadata is not None:
            self.members[member_id] = metadata
            self._count(metadata, 1)
            if metadata.instance_id is not None:
                self.static_ids[metadata.instance_id] = member_id

    def _count(self, metadata: MemberMetadata, change: int) -> None:
        for name in metadata.topic_names:
            _add(self.name_counts, name, change)
        if metadata.topic_pattern is not None:
            _add(self.pattern_counts, metadata.topic_pattern, change)
        if metadata.server_assignor is not None:
            _add(self.assignor_counts, metadata.server_assignor, change)

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        old = self.currents.pop(member_id, None)
        if old is not None:
            for assignment in (old.assigned, old.pending_revocation):
                self._release(member_id, assignment)
        if current is not None:
            self.currents[member_id] = current
            for assignment in (current.assigned, current.pending_revocation):
                for topic_id, partitions in assignment.items():
                    self._holders.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, assignment: Assignment) -> None:
        for topic_id, partitions in assignment.items():
            holders = self._holders.get(topic_id, {})
            for partition in partitions:
                # In a compacted log the next holder's record may come first.
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self._holders.pop(topic_id, None)

    def check_invariants(self) -> None:
        """For tests: the indexes equal those recomputed from the records."""
        fresh = ConsumerGroupState(self.group_id)
        held: dict[tuple[UUID, int], str] = {}
        for member_id, metadata in self.members.items():
            fresh._set_member(member_id, metadata)
        for member_id, current in self.currents.items():
            fresh._set_current(member_id, current)
            for assignment in (current.assigned, current.pending_revocation):
                for topic_id, partitions in assignment.items():
                    for partition in partitions:
                        other = held.setdefault((topic_id, partition), member_id)
                        assert other == member_id, f"{topic_id}-{partition} is held by {other} and {member_id}"
        assert fresh._holders == self._holders
        assert fresh.static_ids == self.static_ids
        assert fresh.name_counts == self.name_counts
        assert fresh.pattern_counts == self.pattern_counts
        assert fresh.assignor_counts == self.assignor_counts
        assert self.currents.keys() <= self.members.keys(), "an assignment without a member"
        assert self.targets.keys() <= self.members.keys(), "a target without a member"
        assert self.assignment_epoch <= self.group_epoch


def _add(counts: Counter[str], key: str, change: int) -> None:
    counts[key] += change
    if counts[key] == 0:
        del counts[key]
