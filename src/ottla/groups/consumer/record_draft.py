"""The records of one decision, while it is being made."""

from __future__ import annotations

from ottla.groups.assignors import Assignment
from ottla.groups.consumer.member import CurrentAssignment, MemberMetadata
from ottla.groups.consumer.record_codec import (
    ConsumerRecordKey,
    ResolvedPattern,
    encode_current,
    encode_group_epoch,
    encode_key,
    encode_member,
    encode_pattern,
    encode_target,
    encode_target_epoch,
)
from ottla.groups.consumer.record_types import ConsumerRecordType
from ottla.groups.group_log import GroupRecord


class RecordDraft:
    """At most one record for each key: a later step replaces an earlier one."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._values: dict[ConsumerRecordKey, bytes | None] = {}

    def records(self) -> list[GroupRecord]:
        return [GroupRecord(encode_key(key), value) for key, value in self._values.items()]

    def remove_member(self, member_id: str) -> None:
        """The order matters to Apache Kafka: it refuses to delete a member that still has an assignment."""
        for record_type in (ConsumerRecordType.CURRENT, ConsumerRecordType.TARGET, ConsumerRecordType.MEMBER):
            self._put(record_type, member_id, None)

    def remove_pattern(self, pattern: str) -> None:
        self._put(ConsumerRecordType.PATTERN, pattern, None)

    def remove_topics(self) -> None:
        self._put(ConsumerRecordType.TOPICS, "", None)

    def put_member(self, member_id: str, metadata: MemberMetadata) -> None:
        self._put(ConsumerRecordType.MEMBER, member_id, encode_member(metadata))

    def put_pattern(self, pattern: str, resolved: ResolvedPattern) -> None:
        self._put(ConsumerRecordType.PATTERN, pattern, encode_pattern(resolved))

    def put_group_epoch(self, epoch: int, metadata_hash: int) -> None:
        self._put(ConsumerRecordType.GROUP_EPOCH, "", encode_group_epoch(epoch, metadata_hash))

    def put_target(self, member_id: str, target: Assignment) -> None:
        self._put(ConsumerRecordType.TARGET, member_id, encode_target(target))

    def put_target_epoch(self, epoch: int) -> None:
        self._put(ConsumerRecordType.TARGET_EPOCH, "", encode_target_epoch(epoch))

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self._put(ConsumerRecordType.CURRENT, member_id, encode_current(current))

    def _put(self, record_type: ConsumerRecordType, part: str, value: bytes | None) -> None:
        self._values[ConsumerRecordKey(record_type, self._group_id, part)] = value
