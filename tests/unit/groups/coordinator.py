"""A shard over a log in memory: the test moves the clock, the log's stable end, and lets appends fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.groups.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetToCommit,
    SyncGroup,
    TopicPartitions,
    TransactionalProducer,
    WriteMarker,
)
from ottla.groups.replies import (
    CommitReply,
    DescribedGroup,
    FetchReply,
    JoinReply,
    LeaveReply,
    SyncReply,
)
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shard import GroupShard
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX, SharedBytes
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.records.end_marker import EndMarker
from ottla.runtime.clock import Moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.groups.group_log import GroupRecord

R = TypeVar("R")

GROUP = "team"
TOPIC = "orders"
HOST = "/127.0.0.1"
RANGE = (JoinProtocol("range", b"range of a"),)
# Nothing begins at zero, so that a clock mistaken for the other shows.
START_WALL_MS = 1_700_000_000_000
START_MONOTONIC_MS = 5_000


class MemoryLog:
    """Batches of records, and markers.  `stable_end` follows appends at once, unless `holds_back`.

    What a partition decides about transactions it does not: the test names the markers that repeat others.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[GroupRecord, ...]] = []
        # As a load reads them: the records of a batch with the producer id of its transaction, or a marker.
        self.entries: list[tuple[Sequence[GroupRecord], int] | WriteMarker] = []
        self.repeats_markers = False
        self.end = 0
        self.stable_end = 0
        self.holds_back = False
        self.refuses_with: ErrorCode | None = None

    def append(self, records: Sequence[GroupRecord], now_ms: int, producer: TransactionalProducer | None = None) -> int:
        assert records
        self._refuse()
        self.batches.append(tuple(records))
        self.entries.append((records, NO_PRODUCER_ID if producer is None else producer.producer_id))
        return self._appended(len(records))

    def append_marker(self, command: WriteMarker, now_ms: int) -> int | None:
        self._refuse()
        if self.repeats_markers:
            return None
        self.entries.append(command)
        return self._appended(1)

    def _refuse(self) -> None:
        if self.refuses_with is not None:
            raise RequestError(self.refuses_with, "refused by the test")

    def _appended(self, count: int) -> int:
        self.end += count
        if not self.holds_back:
            self.stable_end = self.end
        return self.end

    def cut(self, batches_count: int) -> None:
        """Keep so many batches of a log without markers."""
        assert len(self.entries) == len(self.batches)
        del self.batches[batches_count:], self.entries[batches_count:]
        self.end = sum(map(len, self.batches))

    def load(self, shard: GroupShard) -> None:
        for entry in self.entries:
            if isinstance(entry, WriteMarker):
                shard.replay_marker(entry.producer_id, commits=entry.marker.commits)
                continue
            records, producer_id = entry
            for key, value in records:
                shard.replay(key, value, producer_id)

    def records(self) -> Iterable[GroupRecord]:
        return [record for batch in self.batches for record in batch]


class Asked:
    """A request: `reply` fails the test while there is none, or more than one."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    @property
    def waits(self) -> bool:
        return not self.replies

    @property
    def reply(self) -> Any:
        (reply,) = self.replies
        return reply

    def of(self, reply_type: type[R]) -> R:
        assert isinstance(self.reply, reply_type)
        return self.reply


class Coordinator:
    def __init__(self, settings: GroupSettings | None = None, topics: TopicsImage | None = None) -> None:
        self.log = MemoryLog()
        self.settings = settings or GroupSettings()
        self.topics = topics or TopicsImage.of()
        self.own_times: dict[str, ConsumerTimes] = {}
        self.wall_ms = START_WALL_MS
        self.monotonic_ms = START_MONOTONIC_MS
        self._ids_made = 0
        self.member_bytes = SharedBytes(MEMBER_BYTES_MAX)
        self.offset_bytes = SharedBytes(OFFSET_BYTES_MAX)
        self.shard = self._new_shard()
        self.shard.loaded(self.now)

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.monotonic_ms)

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.log,
            self.settings,
            self._new_member_id,
            self.topics,
            self._times_of,
            self.member_bytes,
            self.offset_bytes,
        )

    def _times_of(self, group_id: str) -> ConsumerTimes:
        return self.own_times.get(group_id, self.settings.consumer_times)

    def _new_member_id(self, prefix: str) -> str:
        self._ids_made += 1
        return f"{prefix}-{self._ids_made}"

    def restart(self, member_limit_bytes: int = MEMBER_BYTES_MAX) -> None:
        """A new process: the log is replayed, and its clock starts at 0."""
        self.member_bytes = SharedBytes(member_limit_bytes)
        self.offset_bytes = SharedBytes(OFFSET_BYTES_MAX)
        self.shard = self._new_shard()
        self.log.load(self.shard)
        self.log.stable_end = self.log.end
        self.monotonic_ms += 1_000
        self.shard.loaded(self.now)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        until_ms = self.monotonic_ms + duration_ms
        while (due_ms := self.shard.next_due_ms()) is not None and due_ms <= until_ms:
            self._move_to(max(due_ms, self.monotonic_ms))
            self.shard.on_time(self.now)
        self._move_to(until_ms)

    def _move_to(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.monotonic_ms
        self.monotonic_ms = monotonic_ms

    def flush(self) -> None:
        self.log.stable_end = self.log.end
        self.shard.on_stable(self.log.end)

    def ask(self, command: Command) -> Asked:
        asked = Asked()
        self.shard.submit(command, asked.replies.append, self.now)
        return asked

    def ask_join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[JoinProtocol] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        requires_known_member_id: bool = False,
        may_skip_assignment: bool = True,
        group_id: str = GROUP,
        client_id: str = "client",
        host: str = HOST,
        waiter: object | None = None,
    ) -> Asked:
        return self.ask(
            JoinGroup(
                group_id,
                member_id,
                instance_id,
                client_id,
                host,
                protocol_type,
                protocols,
                session_timeout_ms,
                rebalance_timeout_ms,
                requires_known_member_id=requires_known_member_id,
                may_skip_assignment=may_skip_assignment,
                waiter=waiter,
            )
        )

    def ask_sync(
        self,
        joined: JoinReply,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> Asked:
        given = [MemberAssignment(*pair) for pair in (assignments or {}).items()]
        return self.ask(SyncGroup(group_id, joined.generation, joined.member_id, instance_id, None, None, given))

    def heartbeat(self, joined: JoinReply, instance_id: str | None = None, group_id: str = GROUP) -> ErrorCode:
        asked = self.ask(Heartbeat(group_id, joined.generation, joined.member_id, instance_id))
        return asked.of(ErrorCode)

    def leave(self, *members: tuple[str, str | None], group_id: str = GROUP) -> LeaveReply:
        leaving = [LeavingMember(*member) for member in members]
        return self.ask(LeaveGroup(group_id, leaving)).of(LeaveReply)

    def stable_group(self, size: int, **options: Any) -> list[JoinReply]:
        """Members of a stable group, the leader first; member i is assigned `part i`."""
        joined = self.join_together([self.ask_join(client_id=f"client{n}", **options) for n in range(size)])
        self.sync_all(joined)
        return joined

    def join_together(self, asked: Sequence[Asked]) -> list[JoinReply]:
        """The joins of a first rebalance, which waits for latecomers."""
        while any(one.waits for one in asked):
            self.pass_ms(self.settings.initial_rebalance_delay_ms)
        return [one.of(JoinReply) for one in asked]

    def sync_all(self, joined: Sequence[JoinReply]) -> list[SyncReply]:
        assignments = {one.member_id: b"part %d" % number for number, one in enumerate(joined)}
        asked = [self.ask_sync(one, assignments if one.leader_id == one.member_id else None) for one in joined]
        return [one.of(SyncReply) for one in asked]

    def commit(
        self,
        offsets: dict[int, int],
        joined: JoinReply | None = None,
        *,
        topic: str = TOPIC,
        metadata: str = "",
        retention_ms: int | None = None,
        group_id: str = GROUP,
        host: str = HOST,
        producer_id: int | None = None,
    ) -> Asked:
        """Partitions of `topic`, and the offset of each; by a simple consumer when no member has joined.

        In the transaction of `producer_id`, if any.
        """
        member_id, generation = ("", -1) if joined is None else (joined.member_id, joined.generation)
        committed = [OffsetToCommit(topic, partition, offset, 7, metadata) for partition, offset in offsets.items()]
        producer = None if producer_id is None else TransactionalProducer(producer_id, 0)
        return self.ask(
            CommitOffsets(
                group_id, member_id, None, generation, committed, retention_ms, client_host=host, producer=producer
            )
        )

    def commit_errors(self, *args: Any, **kwargs: Any) -> set[ErrorCode]:
        return set(self.commit(*args, **kwargs).of(CommitReply).errors)

    def ask_end(self, producer_id: int, *, commits: bool) -> Asked:
        """The marker of a transaction arrives."""
        return self.ask(WriteMarker(producer_id, 1, EndMarker(commits, 7), True))

    def end(self, producer_id: int, *, commits: bool = True) -> ErrorCode:
        return self.ask_end(producer_id, commits=commits).of(ErrorCode)

    def stable(self, group_id: str = GROUP) -> dict[tuple[str, int], int | ErrorCode]:
        """All offsets as a consumer of committed data requests them."""
        reply = self.ask(FetchOffsets(group_id, None, requires_stable=True)).of(FetchReply)
        assert reply.error is ErrorCode.NONE
        return {
            (topic, one.partition): one.error or one.offset for topic, partitions in reply.topics for one in partitions
        }

    def ask_committed(self, group_id: str = GROUP, topics: Sequence[TopicPartitions] | None = None) -> Asked:
        return self.ask(FetchOffsets(group_id, topics))

    def committed(self, group_id: str = GROUP) -> dict[tuple[str, int], int]:
        reply = self.ask_committed(group_id).of(FetchReply)
        assert reply.error is ErrorCode.NONE
        return {(topic, one.partition): one.offset for topic, partitions in reply.topics for one in partitions}

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        return self.ask(DescribeGroup(group_id)).of(DescribedGroup)

    def state(self, group_id: str = GROUP) -> str:
        return self.describe(group_id).state

    def delete(self, group_id: str = GROUP) -> ErrorCode:
        return self.ask(DeleteGroup(group_id)).of(ErrorCode)
