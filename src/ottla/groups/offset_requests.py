"""Commits, fetches and deletions of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.groups.commands import CommitOffsets, DeleteOffsets, FetchOffsets, TopicPartitions
from ottla.groups.decision import Moment
from ottla.groups.group_log import GroupRecord
from ottla.groups.group_table import AnyGroup, GroupTable
from ottla.groups.offset_expiry import write_in_batches
from ottla.groups.offset_records import METADATA_BYTES_MAX, offset_key, offset_key_prefix, offset_value
from ottla.groups.refusals import code_for_committer, code_for_member
from ottla.groups.replies import CommitReply, DeleteOffsetsReply, FetchReply, TopicErrors
from ottla.groups.shard_services import ShardServices
from ottla.groups.shared_bytes import SharedBytes, network_of
from ottla.model.error_code import ErrorCode


class OffsetRequests:
    """For all groups of a shard, of both kinds."""

    def __init__(self, table: GroupTable, services: ShardServices, held: SharedBytes) -> None:
        self._table: Final = table
        self._held: Final = held
        self._services: Final = services

    def commit(self, command: CommitOffsets, reply: Callable[[CommitReply], None], moment: Moment) -> None:
        """All offsets of a request are appended as one batch, but those with too much metadata, and new ones when the
        client's network, the group, or all groups together hold too many."""
        error = self._check_commit(command, moment)
        if error is not ErrorCode.NONE:
            self._services.answer(reply, CommitReply((error,) * len(command.offsets)))
            return
        errors, records = self._records(command, moment.wall_ms)
        if records:
            with self._table.committing(network_of(command.client_host)):
                refusal = self._services.write(records, moment)
            if refusal is not ErrorCode.NONE:
                code = code_for_committer(refusal)
                errors = [code if error is ErrorCode.NONE else error for error in errors]
        self._services.answer(reply, CommitReply(errors))

    def _check_commit(self, command: CommitOffsets, moment: Moment) -> ErrorCode:
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._table.get(command.group_id)
        if group is not None:
            return group.check_commit(command, moment)
        if command.generation_or_epoch < 0:
            return ErrorCode.NONE
        # Kafka sends it since the version for consumer groups; older clients understand the other one.
        return ErrorCode.GROUP_ID_NOT_FOUND if command.knows_stale_epoch else ErrorCode.ILLEGAL_GENERATION

    def _records(self, command: CommitOffsets, wall_ms: int) -> tuple[list[ErrorCode], list[GroupRecord]]:
        metadata_max_bytes = min(self._services.settings.offset_metadata_max_bytes, METADATA_BYTES_MAX)
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        last_topic, prefix = None, b""
        # Those that are there may be committed again, without more metadata.
        known = self._table.offsets(command.group_id)
        is_full = not self._held.has_room_for(1, network_of(command.client_host), known.held_bytes)
        is_refused = False
        for commit in command.offsets:
            # A character has four bytes at most: short ones need no exact count.
            if len(commit.metadata) * 4 > metadata_max_bytes and len(commit.metadata.encode()) > metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if commit.topic != last_topic:
                last_topic, prefix = commit.topic, offset_key_prefix(command.group_id, commit.topic)
            value = offset_value(commit, wall_ms, command.retention_ms)
            if is_full and len(value) > known.size_bytes(commit.topic, commit.partition):
                errors.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                is_refused = True
                continue
            records.append(GroupRecord(offset_key(prefix, commit.partition), value))
            errors.append(ErrorCode.NONE)
        if is_refused:
            self._held.note_refused(command.group_id, command.client_host)
        return errors, records

    def fetch(self, command: FetchOffsets) -> FetchReply:
        """An unknown group has no committed offsets, which is no error."""
        group = self._table.get(command.group_id)
        if group is not None:
            error = group.check_fetch(command.member_id, command.member_epoch)
            if error is not ErrorCode.NONE:
                return FetchReply(error)
        offsets = self._table.offsets(command.group_id)
        topics = offsets.fetch_all() if command.topics is None else offsets.fetch(command.topics)
        return FetchReply(ErrorCode.NONE, topics)

    def delete(self, command: DeleteOffsets, moment: Moment) -> DeleteOffsetsReply:
        """Offsets of topics that a live member reads stay."""
        group = self._table.get(command.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
        if group is None or error is not ErrorCode.NONE:
            return DeleteOffsetsReply(error)
        read = frozenset(group.read_among({topic for topic, _ in command.topics}))
        records = list(self._tombstones(group, [asked for asked in command.topics if asked.topic not in read]))
        if records:
            error = code_for_member(write_in_batches(self._services, records, moment))
            if error is not ErrorCode.NONE:
                return DeleteOffsetsReply(error)
        return DeleteOffsetsReply(ErrorCode.NONE, [_per_topic(asked, asked.topic in read) for asked in command.topics])

    def _tombstones(self, group: AnyGroup, topics: Sequence[TopicPartitions]) -> Iterator[GroupRecord]:
        offsets = self._table.offsets(group.group_id)
        for topic, partitions in topics:
            prefix = offset_key_prefix(group.group_id, topic)
            for partition in partitions:
                if offsets.has(topic, partition):
                    yield GroupRecord(offset_key(prefix, partition), None)


def _per_topic(asked: TopicPartitions, is_read: bool) -> TopicErrors:
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
    return TopicErrors(asked.topic, [(partition, error) for partition in asked.partitions])
