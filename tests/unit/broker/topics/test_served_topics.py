"""Topics follow the tree: over a real tree and real logs on a disk in memory, where creations and deletions fail."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.context import NewTopic
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.record_deletions import RecordDeletions
from ottla.broker.partitions.topic_configs import log_config
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.broker.topics.served_topics import (
    RETRY_AFTER_S_MAX,
    RETRY_AFTER_S_MIN,
    NotServed,
    ServedTopics,
    TopicsObserver,
)
from ottla.broker.topics.topic_requests import TopicRequests
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.changes import Changes
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.layout import lay_out, topic_path
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topic_nodes import TopicPointer, decode_pointer, encode_pointer
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Topic
from ottla.coordination.tree import ConnectionLoss, SetNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import OFFSETS_TOPIC, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.model.settings import BrokerSettings
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER
from ottla.records.record import Record
from ottla.replication.replica import Role
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.open_files import LogsRoom
from ottla.storage.errors import DirectoryOffline
from ottla.testing.disk_faults import OperationKind
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.live_brokers import live

HERE = NodeId(1)
UNKNOWN, STORAGE_ERROR = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR


class Timer:
    """A timer that the test lets ring."""

    def __init__(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Node:
    """One broker's topics, from the tree to the logs.  `restart` leaves the tree and the disk as they are."""

    def __init__(
        self,
        home: EmbeddedBackend,
        disk: MemoryDisk,
        registry: TopicRegistry,
        configs: ConfigRegistry,
        lifecycle: BrokerLifecycle,
        room: LogsRoom | None = None,
    ) -> None:
        self.lifecycle = lifecycle
        self.room = room
        self.home = home
        self.disk = disk
        self.registry = registry
        self.configs = configs
        self.settings = BrokerSettings.of({"log.flush.policy": "os"})
        self.timers: list[Timer] = []
        # What the observer of the served topics was called with.
        self.changed: list[tuple[str, bool]] = []
        self.changed_roles: list[str] = []
        self.followed: list[dict[str, int]] = []
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "/data", clock=FakeClock(), config_of=self._config_of)
        self.partitions = PartitionTable()
        self.served = ServedTopics(
            self.lifecycle,
            self.registry,
            self.configs,
            self.directory,
            self._config_of,
            self.partitions,
            self,
            FakeClock(),
            lambda opened: Partition(opened, HERE),
            TopicsObserver(
                on_changed=lambda name, topic: self.changed.append((name, topic is not None)),
                on_roles_changed=lambda found: self.changed_roles.extend(str(each.topic_partition) for each in found),
                on_followed=lambda view: self.followed.append(
                    {name: len(topic.partitions) for name, topic in view.by_name.items()}
                ),
            ),
        )
        self.topics = TopicRequests(
            HERE,
            lambda: live(HERE),
            self.settings,
            self.registry,
            self.configs,
            self.directory,
            self.partitions,
            self.served,
            lambda _topic, _partition: 1,
            self.room,
        )

    async def restart(self) -> None:
        self.directory.abandon()
        self.open()
        await self.served.start()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        self.timers.append(Timer(delay, callback))
        return self.timers[-1]

    @property
    def due(self) -> list[float]:
        """The delays of the timers that are armed."""
        return [timer.delay_s for timer in self.timers if not timer.is_cancelled]

    async def ring(self) -> None:
        """Let the armed timer ring, and what it begins come to its end."""
        (timer,) = [timer for timer in self.timers if not timer.is_cancelled]
        self.timers.clear()
        timer.callback()
        assert self.served._retrying is not None
        await self.served._retrying

    async def create(self, name: str, count: int = 1, **config: str) -> Topic:
        given = {key.replace("_", "."): value for key, value in config.items()}
        return await self.topics.create(NewTopic(name, count, config=given), validate_only=False)

    def fail_creation(self, error: int = errno.ENOSPC, kind: OperationKind = "write") -> None:
        self.disk.faults.fail(kind, error=error, times=None, path_contains="partition.metadata")

    def append(self, name: str, index: int = 0) -> int:
        partition = self.partitions.find(name, index)
        assert partition is not None
        batch = build_batch([Record(0, 1, b"key", b"value")], Codec.NONE)
        return partition.append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, 1)[0]

    def errors(self, name: str, count: int) -> list[ErrorCode | None]:
        """Why each partition is not served; None where it is."""
        return [
            None if self.partitions.find(name, index) else self.partitions.absence_error(name, index)
            for index in range(count)
        ]

    @property
    def directories(self) -> list[str]:
        return [name for name in self.disk.list_directory("/data") if self.disk.is_directory(f"/data/{name}")]

    async def notes(self) -> list[str]:
        return [deletion.name for deletion in await self.registry.pending_deletions()]

    def _config_of(self, topic_partition: TopicPartition) -> Any:
        return log_config(self.configs.view.topic(topic_partition.topic), self.settings)


@asynccontextmanager
async def node_at(
    path: Path, lifecycle: BrokerLifecycle | None = None, *, room: LogsRoom | None = None
) -> AsyncIterator[Node]:
    if lifecycle is None:
        lifecycle = BrokerLifecycle.sole(HERE)
        lifecycle.registered(1)
    home = await EmbeddedBackend.open(str(path / "tree"))
    try:
        tree = await home.connect()
        await lay_out(tree)
        node = Node(home, MemoryDisk(), TopicRegistry(tree), ConfigRegistry(tree), lifecycle, room)
        await node.served.start()
        yield node
        await node.served.stop()
    finally:
        await home.close()


async def test_created_topic_is_served_when_the_request_returns(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 3)
        assert node.errors("t", 4) == [None, None, None, UNKNOWN]
        assert list(node.served.view.by_name) == ["t"]
        assert node.append("t") == 0
        assert not node.due


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=["no-room", "no-descriptor"])
@pytest.mark.parametrize("count", [1, 5])
async def test_topic_whose_logs_cannot_be_made_is_served_once_they_can(
    tmp_path: Path, error: int, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation(error, "create" if error == errno.EMFILE else "write")
        with caplog.at_level(logging.CRITICAL), pytest.raises(NotServed, match="'t' is in the tree") as failure:
            await node.create("t", count)
        assert failure.value.error_code is STORAGE_ERROR
        assert "without a restart" in (failure.value.hint or "")
        assert list(node.served.view.by_name) == ["t"], "clients hear of it, and of its error"
        assert node.errors("t", count) == [STORAGE_ERROR] * count
        assert node.directories == []
        await node.ring()
        assert node.errors("t", count) == [STORAGE_ERROR] * count
        node.disk.faults.clear()
        with caplog.at_level(logging.CRITICAL):
            await node.ring()
        assert node.errors("t", count) == [None] * count
        assert not node.due
        assert node.append("t") == 0


async def test_retries_wait_longer_and_longer_until_the_tree_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_at(tmp_path) as node:
        node.disk.faults.fail("make_directory", error=errno.ENOSPC, times=None, path_contains="t-0")
        with pytest.raises(NotServed):
            await node.create("t")
        delays = []
        for _ in range(6):
            delays += node.due
            await node.ring()
        assert delays == [RETRY_AFTER_S_MIN, 2.0, 4.0, 8.0, RETRY_AFTER_S_MAX, RETRY_AFTER_S_MAX]
        await node.create("other")
        assert node.due == [RETRY_AFTER_S_MIN]
        told = [record for record in caplog.records if record.getMessage() == "topic.not_reconciled"]
        assert len(told) == 1, "the same failure is reported once"


async def test_retries_go_on_when_the_disk_stays_full_for_hours(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.disk.faults.fail("make_directory", error=errno.ENOSPC, times=None, path_contains="t-0")
        with pytest.raises(NotServed):
            await node.create("t")
        for _ in range(1_100):
            await node.ring()
        assert node.due == [RETRY_AFTER_S_MAX]
        node.disk.faults.clear()
        await node.ring()
        assert node.errors("t", 1) == [None]


async def test_topic_whose_logs_cannot_be_made_can_be_deleted(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("t", 5)
        await node.topics.delete("t", None)
        assert node.errors("t", 5) == [UNKNOWN] * 5
        assert not node.served.view.by_name
        assert await node.notes() == []
        assert not node.due
        node.disk.faults.clear()
        await node.create("t", 2)
        assert node.errors("t", 2) == [None, None]


async def test_topic_whose_logs_cannot_be_made_is_served_after_a_restart(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("t", 5)
        await node.restart()
        assert node.errors("t", 5) == [STORAGE_ERROR] * 5, "the start is the same function, and fails no worse"
        node.disk.faults.clear()
        await node.restart()
        assert node.errors("t", 5) == [None] * 5


async def test_failed_creation_leaves_the_other_topics_alone(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("before")
        node.disk.faults.fail("make_directory", error=errno.ENOSPC, times=None, path_contains="t-0")
        with pytest.raises(NotServed):
            await node.create("t")
        await node.create("after")
        assert [node.append(name) for name in ("before", "after")] == [0, 0]
        await node.topics.delete("before", None)
        assert node.errors("t", 1) == [STORAGE_ERROR]


async def test_added_partitions_that_cannot_be_made_leave_the_others_served(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.topics.add_partitions("t", 4, None, validate_only=False)
        assert node.errors("t", 4) == [None, None, STORAGE_ERROR, STORAGE_ERROR]
        node.disk.faults.clear()
        await node.ring()
        assert node.errors("t", 4) == [None] * 4


@pytest.mark.parametrize(("kind", "where", "times"), [("rename", "t-1", 2), ("write", "flushed-ends", 1)])
async def test_deletion_of_directories_that_fails_is_repeated(
    tmp_path: Path, kind: OperationKind, where: str, times: int
) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 3)
        node.disk.faults.fail(kind, error=errno.ENOSPC, times=times, path_contains=where)
        await node.topics.delete("t", None)
        assert node.errors("t", 3) == [UNKNOWN] * 3, "it is served no more"
        for _ in range(times):
            assert await node.notes() == ["t"], "and its directories are not forgotten"
            await node.ring()
        assert await node.notes() == []
        assert not node.due
        await node.restart()
        assert not node.directory.logs


async def test_deletion_whose_sync_fails_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 3)
        node.disk.faults.fail("sync_directory")
        await node.topics.delete("t", None)
        assert node.errors("t", 3) == [UNKNOWN] * 3
        assert node.directory.offline is not None
        assert not node.due
        assert await node.notes() == ["t"]
        await node.restart()
        assert not node.directory.logs
        assert await node.notes() == []


async def test_recreated_topic_waits_for_the_deletion_of_the_old_one(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        node.append("t")
        node.disk.faults.fail("rename", times=2, path_contains="t-0")
        await node.topics.delete("t", None)
        with pytest.raises(NotServed):
            await node.create("t", 2)
        assert node.errors("t", 2) == [STORAGE_ERROR] * 2
        await node.ring()
        assert node.append("t") == 0
        assert await node.notes() == []


async def test_deletion_that_a_crash_cut_short_is_finished_by_the_start(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        node.append("t")
        await node.registry.delete("t")
        await node.restart()
        assert not node.directory.logs
        assert await node.notes() == []


async def test_start_finishes_the_deletion_of_a_log_that_it_could_not_open(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        await node.registry.delete("t")
        node.disk.faults.fail("open", path_contains="t-0/0000")
        await node.restart()
        assert not node.directory.failed
        await node.create("t", 2)
        assert node.errors("t", 2) == [None, None]


async def test_log_without_a_topic_is_reported_once_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        await node.registry.delete("t")
        await node.registry.finish_deletions(
            [deletion.topic_id for deletion in await node.registry.pending_deletions()], HERE
        )
        await node.restart()
        await node.create("other")
        reported = [record for record in caplog.records if record.getMessage() == "log.without_topic"]
        assert len(reported) == 2
        assert len(node.directory.logs) == 3
        with pytest.raises(RequestError):
            await node.topics.delete("t", None)
        with pytest.raises(NotServed, match="another topic"):
            await node.create("t", 2)
        assert node.errors("t", 2) == [ErrorCode.INCONSISTENT_TOPIC_ID] * 2, "its records are another topic's"
        assert not node.due, "no retry helps"


async def test_topic_of_the_groups_can_be_deleted_only_while_it_has_no_logs(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create(OFFSETS_TOPIC, 5)
        await node.topics.delete(OFFSETS_TOPIC, None)
        node.disk.faults.clear()
        await node.create(OFFSETS_TOPIC, 2)
        with pytest.raises(RequestError, match="holds the committed offsets") as refusal:
            await node.topics.delete(OFFSETS_TOPIC, None)
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        node.disk.faults.fail("open", times=None, path_contains="offsets-")
        await node.restart()
        assert node.errors(OFFSETS_TOPIC, 2) == [STORAGE_ERROR] * 2
        with pytest.raises(RequestError, match="holds the committed offsets"):
            await node.topics.delete(OFFSETS_TOPIC, None)


async def test_altered_settings_reach_the_logs(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2, max_message_bytes="1000")
        await node.topics.alter_config(ConfigEntity.topic("t"), {"max.message.bytes": "2000"}, replaces_all=False)
        assert [partition.max_message_bytes for partition in node.partitions] == [2000, 2000]


async def test_settings_altered_while_a_log_cannot_be_made_hold_for_it(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("t", 1)
        await node.topics.alter_config(ConfigEntity.topic("t"), {"max.message.bytes": "2000"}, replaces_all=False)
        node.disk.faults.clear()
        await node.ring()
        assert [partition.max_message_bytes for partition in node.partitions] == [2000]


async def test_settings_altered_while_an_added_log_cannot_be_made_hold_for_the_served_ones(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.topics.add_partitions("t", 3, None, validate_only=False)
        # As a shorter retention would be, which makes the room that is missing.
        await node.topics.alter_config(ConfigEntity.topic("t"), {"max.message.bytes": "2000"}, replaces_all=False)
        assert [partition.max_message_bytes for partition in node.partitions] == [2000, 2000]
        node.disk.faults.clear()
        await node.ring()
        assert [partition.max_message_bytes for partition in node.partitions] == [2000, 2000, 2000]


async def test_no_topic_is_made_in_a_directory_that_is_offline(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.directory.directory_failed(OSError(errno.EIO, "a sync failed"))
        with pytest.raises(DirectoryOffline):
            await node.create("t")
        assert not (await node.registry.refresh()).by_name
        assert not node.due


async def test_changes_of_what_is_served_are_announced(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("t", 2)
        assert node.changed == [("t", True)]
        await node.topics.add_partitions("t", 3, None, validate_only=False)
        assert node.changed == [("t", True)] * 2
        await node.topics.delete("t", None)
        assert node.changed == [("t", True), ("t", True), ("t", False)]


async def test_change_by_another_writer_is_followed(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        other = TopicRegistry(await node.home.connect())
        await other.create("theirs", [[HERE], [HERE]], {HERE: 1}, {"max.message.bytes": "77"})
        await node.served.follow()
        assert node.errors("theirs", 2) == [None, None]
        assert [partition.max_message_bytes for partition in node.partitions] == [77, 77]
        await other.delete("theirs")
        await node.served.follow()
        assert node.errors("theirs", 2) == [UNKNOWN, UNKNOWN]
        assert not node.directory.logs


async def test_name_that_is_taken_or_collides_is_refused_before_all_else(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("a.b")
        for name, code in (
            ("a.b", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ):
            for validate_only in (True, False):
                with pytest.raises(RequestError) as refusal:
                    await node.topics.create(NewTopic(name, -7), validate_only=validate_only)
                assert refusal.value.code is code


ELSEWHERE = NodeId(2)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@asynccontextmanager
async def member_at(path: Path) -> AsyncIterator[Node]:
    """A broker that is one of two: it leads only in its present life."""
    async with node_at(path, BrokerLifecycle(HERE)) as node:
        node.lifecycle.registered(7)
        yield node


def role_of(partition: Partition) -> Role:
    return partition.role


async def change_state(
    node: Node, name: str, index: int, leader: NodeId, epoch: int, *members: tuple[int, int]
) -> None:
    topic = (await node.registry.refresh()).by_name[name]
    in_sync = tuple(ReplicaIncarnation(NodeId(node_id), broker_epoch) for node_id, broker_epoch in members)
    state = PartitionState(leader, LeaderEpoch(epoch), in_sync)
    await node.registry.change_states([StateChange.of(topic, topic.partitions[index], state)])
    await node.served.follow()


async def test_partition_of_another_broker_is_known_and_not_made(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        topic = await node.registry.create("t", [[HERE], [ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        assert node.errors("t", 3) == [None, NOT_LEADER, UNKNOWN]
        by_id = node.partitions.by_id
        assert by_id.get(topic.topic_id.bytes, 0) is not None
        assert [by_id.absence_error(topic.topic_id.bytes, index) for index in (1, 2)] == [NOT_LEADER, UNKNOWN]
        assert node.directories == ["t-0"]
        await node.registry.delete("t")
        await node.served.follow()
        assert node.errors("t", 2) == [UNKNOWN, UNKNOWN]
        assert by_id.absence_error(topic.topic_id.bytes, 1) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_broker_leads_what_the_tree_says_in_its_present_life_only(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE], [ELSEWHERE, HERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        led, followed = (node.partitions.find("t", index) for index in (0, 1))
        assert led is not None
        assert followed is not None
        assert (led.role, led.leader_id, led.leader_epoch) == (Role.LEADER, HERE, 0)
        assert (followed.role, followed.leader_id) == (Role.FOLLOWER, ELSEWHERE)
        await change_state(node, "t", 0, ELSEWHERE, 1, (2, 8), (1, 7))
        assert (led.role, led.leader_id, led.leader_epoch) == (Role.FOLLOWER, ELSEWHERE, 1)
        await change_state(node, "t", 1, HERE, 1, (1, 7))
        assert (followed.role, followed.leader_id, followed.leader_epoch) == (Role.LEADER, HERE, 1)
        await change_state(node, "t", 1, HERE, 2, (1, 6))
        assert followed.role is Role.FOLLOWER, "it was elected in a former life"


async def test_broker_without_a_registration_leads_nothing_and_another_one_does_not_resume_it(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        partition = node.partitions.find("t", 0)
        assert partition is not None
        changed = node.changed_roles
        changed.clear()
        assert node.partitions.resignations_count == 0
        node.lifecycle.unregistered()
        node.served.follow_registrations()
        assert (role_of(partition), changed) == (Role.FOLLOWER, ["t-0"])
        assert node.partitions.resignations_count == 1, "kept answers may name it as the leader"
        assert partition.leadership_error(-1) == NOT_LEADER
        node.lifecycle.registered(9)
        await node.served.follow()
        assert role_of(partition) is Role.FOLLOWER
        await change_state(node, "t", 0, HERE, 1, (1, 9))
        assert role_of(partition) is Role.LEADER
        assert changed == ["t-0", "t-0"]
        assert node.partitions.resignations_count == 1


async def test_log_with_a_later_epoch_than_the_tree_is_refused_until_the_tree_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE], [HERE]], {HERE: 7})
        await change_state(node, "t", 0, HERE, 5, (1, 7))
        node.append("t")
        with caplog.at_level(logging.CRITICAL):
            await change_state(node, "t", 0, HERE, 4, (1, 7))
        assert node.errors("t", 2) == [STORAGE_ERROR, None]
        assert node.partitions.resignations_count > 0
        assert not node.due, "no retry helps"
        await change_state(node, "t", 0, HERE, 6, (1, 7))
        assert node.errors("t", 2) == [None, None]


async def test_moved_replica_is_stopped_and_its_log_dropped(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        tree = await node.home.connect()
        path = topic_path("t")
        at = await tree.get(path)
        pointer = decode_pointer(path, at.data)
        moved = encode_pointer(pointer._replace(assignment=((ELSEWHERE,),)))
        await Changes(tree).commit([SetNode(path, moved, at.stat.version)], ["topics/t"])
        await node.served.follow()
        assert node.errors("t", 1) == [NOT_LEADER]
        assert list(node.directory.logs) == [TopicPartition("t", 0)], "it is in sync: an election may need it"
        await change_state(node, "t", 0, ELSEWHERE, 1, (2, 8))
        assert not node.directory.logs
        assert node.errors("t", 1) == [NOT_LEADER]


async def test_tree_that_cannot_be_read_is_read_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_at(tmp_path) as node:
        await node.registry.create("t", [[HERE]], {HERE: 1})

        async def fail() -> Any:
            raise ConnectionLoss("no server answers")

        with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
            patch.setattr(node.registry, "refresh", fail)
            with pytest.raises(ConnectionLoss):
                await node.served.follow()
            assert node.due == [RETRY_AFTER_S_MIN]
            await node.ring()
            assert node.due == [2 * RETRY_AFTER_S_MIN]
        await node.ring()
        assert node.errors("t", 1) == [None]
        assert not node.due


async def test_bug_in_the_changes_of_one_topic_leaves_the_others_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_at(tmp_path) as node:
        for name in ("bad", "good"):
            await node.registry.create(name, [[HERE]], {HERE: 1})
        create = node.directory.create

        async def assert_name(wanted: Any, offload: Any) -> Any:
            assert wanted[0][0].topic != "bad"
            return await create(wanted, offload)

        with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
            patch.setattr(node.directory, "create", assert_name)
            await node.served.follow()
            assert (node.errors("bad", 1), node.errors("good", 1)) == ([STORAGE_ERROR], [None])
            await node.create("later")
            assert node.errors("later", 1) == [None]
        await node.ring()
        assert node.errors("bad", 1) == [None]


async def test_observer_is_called_for_topics_that_come_grow_and_go_and_not_for_other_changes(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.followed.clear()
        await node.create("t", 1)
        await change_state(node, "t", 0, HERE, 1, (1, 1))
        await node.topics.alter_config(ConfigEntity.topic("t"), {"max.message.bytes": "2000"}, replaces_all=False)
        await node.topics.add_partitions("t", 2, None, validate_only=False)
        await node.topics.delete("t", None)
        assert node.followed == [{"t": 1}, {"t": 2}, {}]


async def test_topic_that_was_made_and_deleted_between_two_views_leaves_no_note(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        await node.create("other")
        await node.registry.create("t", [[HERE]], {HERE: 1})
        await node.registry.delete("t")
        assert await node.notes() == ["t"]
        await node.served.follow()
        assert await node.notes() == []


async def test_note_of_a_deletion_stays_for_the_brokers_that_have_something_of_it(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        await node.registry.delete("t")
        await node.served.follow()
        assert not node.directory.logs
        (deletion,) = await node.registry.pending_deletions()
        assert deletion.brokers == (ELSEWHERE,)


async def test_broker_that_was_down_while_a_topic_was_recreated_drops_the_old_one(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE]], {HERE: 7})
        await node.served.follow()
        node.append("t")
        await node.registry.delete("t")
        await node.registry.create("t", [[HERE], [ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.restart()
        assert node.errors("t", 2) == [None, NOT_LEADER]
        assert node.append("t") == 0
        assert await node.notes() == []


async def test_damaged_log_is_fetched_anew_once_this_replica_left_the_in_sync_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        node.append("t")
        node.disk.faults.fail("open", error=errno.EIO, path_contains="t-0/0000")
        with caplog.at_level(logging.CRITICAL):
            await node.restart()
            assert node.errors("t", 1) == [STORAGE_ERROR]
            await change_state(node, "t", 0, ELSEWHERE, 1, (2, 8))
        partition = node.partitions.find("t", 0)
        assert partition is not None
        assert (partition.leader_id, partition.log_end_offset) == (ELSEWHERE, 0)
        assert len([name for name in node.directories if name.endswith("-damaged")]) == 1


async def test_records_are_deleted_at_the_leader_only(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[ELSEWHERE, HERE], [ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        for index in (0, 1):
            wanted = {TopicPartition("t", index): 0}
            (refusal,) = (await RecordDeletions(node.partitions, node.directory).delete(wanted, 1_000)).values()
            assert isinstance(refusal, RequestError)
            assert refusal.code is NOT_LEADER


async def forget_deletion(node: Node, name: str) -> UUID:
    """Delete a topic whose note names others: this broker's replica was moved away while it was down."""
    deletion = await node.registry.delete(name)
    for each in (HERE, ELSEWHERE):
        await node.registry.finish_deletions([deletion.topic_id], each)
    assert await node.notes() == []
    return deletion.topic_id


async def test_log_of_a_topic_that_came_and_went_while_the_broker_was_down_is_kept_under_another_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE]], {HERE: 7})
        await node.served.follow()
        node.append("t")
        topic_id = await forget_deletion(node, "t")
        await node.restart()
        assert not node.directory.logs
        (name,) = node.directories
        assert name.startswith(f"t-0.{topic_id.hex}.")
        assert name.endswith("-stray")
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.restart()
        assert node.errors("t", 1) == [None], "a new topic of its name has its own log"
        assert [each.getMessage() for each in caplog.records].count("log.stray") == 1
        assert name in node.directories


async def test_stray_log_of_a_recreated_topic_gives_way_where_others_are_in_sync(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE], [HERE]], {HERE: 7})
        await node.served.follow()
        await forget_deletion(node, "t")
        await node.registry.create("t", [[HERE, ELSEWHERE], [HERE, ELSEWHERE]], {ELSEWHERE: 8})
        await change_state(node, "t", 1, ELSEWHERE, 1, (1, 7), (2, 8))
        await node.restart()
        assert node.errors("t", 2) == [None, ErrorCode.INCONSISTENT_TOPIC_ID]
        assert sorted(each.partition("-")[2][0] for each in node.directories) == ["0", "0", "1"]


async def test_log_that_was_stray_counts_as_lost_when_its_topic_is_in_the_tree_again(tmp_path: Path) -> None:
    async with member_at(tmp_path) as node:
        await node.registry.create("t", [[HERE, ELSEWHERE]], {HERE: 7, ELSEWHERE: 8})
        await node.served.follow()
        node.append("t")
        before = (await node.registry.refresh()).by_name["t"]
        node.directory.set_complete_from(7)
        await forget_deletion(node, "t")
        await node.restart()
        pointer = TopicPointer(before.topic_id, (before.partitions[0].replicas,))
        await node.registry.install("t", pointer, [before.partitions[0].state], {})
        await node.restart()
        assert node.errors("t", 1) == [STORAGE_ERROR], "its records are gone from its place"
        assert not node.directory.is_complete(TopicPartition("t", 0), 6)


async def test_creation_that_failed_inside_is_completed_by_the_next_request_for_it(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("orders", 2, retention_ms="5")
        with pytest.raises(NotServed):
            await node.create("orders", 2, retention_ms="5")
        node.disk.faults.clear()
        with pytest.raises(RequestError) as other:
            await node.create("orders", 3, retention_ms="5")
        assert other.value.code is ErrorCode.TOPIC_ALREADY_EXISTS, "that is another topic"
        topic = await node.create("orders", 2, retention_ms="5")
        assert len(topic.partitions) == 2
        assert node.errors("orders", 2) == [None, None]
        with pytest.raises(RequestError) as again:
            await node.create("orders", 2, retention_ms="5")
        assert again.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_creation_that_was_completed_meanwhile_is_answered_once(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("orders")
        node.disk.faults.clear()
        await node.ring()
        assert node.errors("orders", 1) == [None]
        assert (await node.create("orders")).name == "orders"
        with pytest.raises(RequestError):
            await node.create("orders")


async def test_topic_made_anew_has_no_unfinished_creation(tmp_path: Path) -> None:
    async with node_at(tmp_path) as node:
        node.fail_creation()
        with pytest.raises(NotServed):
            await node.create("orders")
        node.disk.faults.clear()
        await node.topics.delete("orders", None)
        first = await node.create("orders")
        with pytest.raises(RequestError):
            await node.create("orders")
        assert node.topics._unfinished == {}
        assert node.registry.view.by_name["orders"].topic_id == first.topic_id


async def test_creation_beyond_the_room_changes_nothing(tmp_path: Path) -> None:
    async with node_at(tmp_path, room=LogsRoom(limit=40, other_files=10)) as node:
        await node.create("orders", 4)
        for create in (node.create("clicks", 3), node.topics.add_partitions("orders", 7, None, validate_only=False)):
            with pytest.raises(RequestError) as refusal:
                await create
            assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert list((await node.registry.refresh()).by_name) == ["orders"]
        await node.topics.add_partitions("orders", 6, None, validate_only=False)
        await node.topics.delete("orders", None)
        await node.create("clicks", 6)
