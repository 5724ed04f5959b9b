"""Committed offsets: requests that commit, fetch and delete them, and their expiry.

Offsets of a group with members never expire.  Those of a group that has become empty expire when it has been empty for
the whole retention, and nothing was committed meanwhile; those of a group that never had members, by each commit's own
time.  A commit may carry its own expiry; it, too, counts only while there are no members.  An offset that an open
transaction may set does not expire meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ottla.groups.commands import CommitOffsets, DeleteOffsets, FetchOffsets, OffsetToCommit, TopicPartitions
from ottla.groups.group import CONSUMER, ShardServices
from ottla.groups.group_log import GroupRecord
from ottla.groups.group_table import NONE_UNSTABLE, AnyGroup, GroupTable
from ottla.groups.offset_records import (
    METADATA_BYTES_MAX,
    committed_ms,
    expires_ms,
    offset_key,
    offset_key_prefix,
    offset_value,
)
from ottla.groups.pending_offsets import OffsetPlace
from ottla.groups.refusals import code_for_committer, code_for_member
from ottla.groups.replies import CommitReply, DeleteOffsetsReply, FetchReply, TopicErrors
from ottla.groups.shared_bytes import SharedBytes, network_of
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import Moment

# Visited in one slice, so that the event loop is not blocked; about a third of a millisecond.
OFFSETS_PER_SLICE: Final = 1_000
# Records in one batch: some 60 bytes each, so far below any limit of batches.
TOMBSTONES_PER_BATCH: Final = 2_000


class OffsetExpiry:
    """A round over all groups every check interval, in slices."""

    def __init__(self, table: GroupTable, services: ShardServices) -> None:
        self._table: Final = table
        self._services: Final = services
        # Monotonic; None before `start`.
        self.due_ms: int | None = None
        self._now = Moment(0, 0)
        self._steps = self._walk()
        # Wall time at which a consumer group was first seen empty: its records do not contain since when.
        self._empty_since_ms: Final[dict[str, int]] = {}

    def start(self, moment: Moment) -> None:
        self.due_ms = moment.monotonic_ms + self._services.settings.offsets_retention_check_interval_ms

    def stop(self) -> None:
        self.due_ms = None

    def note_member(self, group_id: str) -> None:
        """A consumer group is not empty, or soon will not be."""
        self._empty_since_ms.pop(group_id, None)

    def run(self, moment: Moment) -> None:
        """Run one slice, when it is due."""
        if self.due_ms is None or self.due_ms > moment.monotonic_ms:
            return
        self._now = moment
        seen_count = 0
        while seen_count < OFFSETS_PER_SLICE:
            step = next(self._steps, None)
            if step is None:
                self._steps = self._walk()
                self.start(moment)
                return
            seen_count += step

    def _walk(self) -> Iterator[int]:
        """One round: a step for each topic of each group; yields the count of offsets visited."""
        for group_id in list(self._table.group_ids()):
            yield 1
            for topic in list(self._table.offsets(group_id).by_topic):
                if (group := self._empty_group(group_id)) is None:
                    break
                yield self._expire(group, topic)
            group = self._empty_group(group_id)
            if group is not None and not self._table.has_offsets(group_id):
                self._forget(group)

    def _empty_group(self, group_id: str) -> AnyGroup | None:
        """The group, looked up again, since it may have changed after the last step."""
        group = self._table.get(group_id)
        if group is not None and group.is_empty:
            return group
        self.note_member(group_id)
        return None

    def _expire(self, group: AnyGroup, topic: str) -> int:
        since_ms = self._since_ms(group)
        partitions = self._table.offsets(group.group_id).by_topic.get(topic, {})
        prefix = offset_key_prefix(group.group_id, topic)
        # A tombstone would remove what an open transaction is about to commit.
        pending = self._table.pending.partitions(group.group_id, topic)
        expired = [
            GroupRecord(offset_key(prefix, partition), None)
            for partition, value in partitions.items()
            if partition not in pending and self._has_expired(value, since_ms)
        ]
        seen_count = len(partitions)
        write_in_batches(self._services, expired, self._now)
        return seen_count

    def _since_ms(self, group: AnyGroup) -> int:
        if group.kind == CONSUMER:
            return self._empty_since_ms.setdefault(group.group_id, self._now.wall_ms)
        return group.empty_since_ms() or 0

    def _has_expired(self, value: bytes, since_ms: int) -> bool:
        wish_ms = expires_ms(value)
        if wish_ms is not None:
            return wish_ms <= self._now.wall_ms
        return max(committed_ms(value), since_ms) + self._services.settings.offsets_retention_ms <= self._now.wall_ms

    def _forget(self, group: AnyGroup) -> None:
        """An empty group without offsets: Kafka, too, drops it at once."""
        self.note_member(group.group_id)
        if group.has_records:
            self._services.write(list(group.tombstones()), self._now)
        else:
            self._table.forget_if_vacant(group)


def write_in_batches(services: ShardServices, records: Iterable[GroupRecord], moment: Moment) -> ErrorCode:
    """Append tombstones that need not be one batch; those appended before an error stay, which is harmless."""
    rest = list(records)
    for at in range(0, len(rest), TOMBSTONES_PER_BATCH):
        error = services.write(rest[at : at + TOMBSTONES_PER_BATCH], moment)
        if error is not ErrorCode.NONE:
            return error
    return ErrorCode.NONE


# Committed offsets of deleted topics get their tombstones in slices, so that the event loop is not blocked.
#
# No client sees the offsets that remain.  Before a group commits or fetches offsets, its own tombstones are written: so
# offsets committed for a recreated topic are newer than every tombstone of the old one.

# Written in one slice; some two milliseconds.
TOMBSTONES_PER_SLICE: Final = 250
RETRY_MS: Final = 1_000


class DeletedTopicTombstones:
    """The deleted topics, by the groups that had offsets for them, committed or pending."""

    def __init__(self, table: GroupTable, services: ShardServices) -> None:
        self._table: Final = table
        self._services: Final = services
        self._rest: Final[dict[str, set[str]]] = {}
        # Monotonic; None when all is written.
        self.due_ms: int | None = None

    def add(self, topics: Collection[str], moment: Moment) -> None:
        """Visits each group once, also those without commits: a tenth of a microsecond each."""
        gone = frozenset(topics)
        for group_id, of_group in self._table.topics_by_group():
            if found := gone.intersection(of_group):
                self._rest.setdefault(group_id, set()).update(found)
        if self._rest:
            self.due_ms = moment.monotonic_ms

    def settle(self, group_id: str, moment: Moment) -> None:
        """Write all remaining tombstones of one group.  Offsets whose tombstones the log refuses stay until they
        expire."""
        topics = self._rest.pop(group_id, None)
        if topics is not None:
            write_in_batches(self._services, self._tombstones(group_id, topics), moment)

    def run(self, moment: Moment) -> None:
        """Write one slice, when it is due."""
        if self.due_ms is None or self.due_ms > moment.monotonic_ms:
            return
        records, taken = self._take_slice()
        self.due_ms = moment.monotonic_ms if self._rest else None
        if records and self._services.write(records, moment) is not ErrorCode.NONE:
            # Harmless to a shard whose disk failed: its deadlines are no longer run.
            self._rest.update(taken)
            self.due_ms = moment.monotonic_ms + RETRY_MS

    def finish(self, moment: Moment) -> None:
        """Write all remaining tombstones at once, before the shard stops."""
        while self.due_ms is not None and self.due_ms <= moment.monotonic_ms:
            self.run(moment)

    def stop(self) -> None:
        self._rest.clear()
        self.due_ms = None

    def _take_slice(self) -> tuple[list[GroupRecord], dict[str, set[str]]]:
        records: list[GroupRecord] = []
        taken: dict[str, set[str]] = {}
        while self._rest and len(records) < TOMBSTONES_PER_SLICE:
            group_id, topics = self._rest.popitem()
            taken[group_id] = topics
            records += islice(self._tombstones(group_id, topics), TOMBSTONES_PER_SLICE - len(records))
        if len(records) == TOMBSTONES_PER_SLICE:
            # The last group may have more offsets; those written now are not found again.
            self._rest[group_id] = topics
        return records, taken

    def _tombstones(self, group_id: str, topics: Iterable[str]) -> Iterator[GroupRecord]:
        for topic in sorted(topics):
            yield from self._table.topic_tombstones(group_id, topic)


class OffsetRequests:
    """For all groups of a shard, of both kinds."""

    def __init__(self, table: GroupTable, services: ShardServices, held: SharedBytes) -> None:
        self._table: Final = table
        self._held: Final = held
        self._services: Final = services

    def commit(self, command: CommitOffsets, reply: Callable[[CommitReply], None], moment: Moment) -> None:
        """All offsets of a request are appended as one batch, but those with too much metadata, and new ones when the
        client's network, the group, or all groups together hold too many.  What is pending in transactions counts."""
        error = self._check_commit(command, moment)
        if error is not ErrorCode.NONE:
            self._services.answer(reply, CommitReply((error,) * len(command.offsets)))
            return
        errors, records = self._records(command, moment.wall_ms)
        if records:
            with self._table.committing(network_of(command.client_host)):
                refusal = self._services.write(records, moment, command.producer)
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
        # Kafka sends it since the version for consumer groups; older clients understand the other one, and so do
        # producers.
        is_new = command.knows_stale_epoch and command.producer is None
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION

    def _records(self, command: CommitOffsets, wall_ms: int) -> tuple[list[ErrorCode], list[GroupRecord]]:
        metadata_max_bytes = min(self._services.settings.offset_metadata_max_bytes, METADATA_BYTES_MAX)
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        last_topic, prefix = None, b""
        held_bytes = self._table.offsets(command.group_id).held_bytes + self._table.pending.held_bytes(command.group_id)
        is_full = not self._held.has_room_for(1, network_of(command.client_host), held_bytes)
        is_refused = False
        for commit in command.offsets:
            # A character has four bytes at most: short ones need no exact count.
            if len(commit.metadata) * 4 > metadata_max_bytes and len(commit.metadata.encode()) > metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if commit.topic != last_topic:
                last_topic, prefix = commit.topic, offset_key_prefix(command.group_id, commit.topic)
            value = offset_value(commit, wall_ms, command.retention_ms)
            if is_full and len(value) > self._size_bytes(command, commit):
                errors.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                is_refused = True
                continue
            records.append(GroupRecord(offset_key(prefix, commit.partition), value))
            errors.append(ErrorCode.NONE)
        if is_refused:
            self._held.note_refused(command.group_id, command.client_host)
        return errors, records

    def _size_bytes(self, command: CommitOffsets, commit: OffsetToCommit) -> int:
        """Of the value that `commit` replaces: those that are there may be committed again, without more metadata.

        In a transaction, too; but of the transactions that may set one offset only the first has the room of the value
        that is committed.
        """
        committed_bytes = self._table.offsets(command.group_id).size_bytes(commit.topic, commit.partition)
        if command.producer is None:
            return committed_bytes
        place = OffsetPlace(command.group_id, commit.topic, commit.partition)
        pending = self._table.pending.sizes_by_producer(place)
        return pending.get(command.producer.producer_id, 0 if pending else committed_bytes)

    def fetch(self, command: FetchOffsets) -> FetchReply:
        """An unknown group has no committed offsets, which is no error."""
        group = self._table.get(command.group_id)
        if group is not None:
            error = group.check_fetch(command.member_id, command.member_epoch)
            if error is not ErrorCode.NONE:
                return FetchReply(error)
        offsets = self._table.offsets(command.group_id)
        unstable = self._table.unstable(command.group_id) if command.requires_stable else NONE_UNSTABLE
        topics = offsets.fetch_all(unstable) if command.topics is None else offsets.fetch(command.topics, unstable)
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
            pending = self._table.pending.partitions(group.group_id, topic)
            for partition in partitions:
                if offsets.has(topic, partition) or partition in pending:
                    yield GroupRecord(offset_key(prefix, partition), None)


def _per_topic(asked: TopicPartitions, is_read: bool) -> TopicErrors:
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
    return TopicErrors(asked.topic, [(partition, error) for partition in asked.partitions])
