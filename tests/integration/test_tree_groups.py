"""`ottla group` on groups of type tree beside Kafka's own, as a person uses it: a broker that shares a ZooKeeper."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.consumer_registry.group_nodes import ConsumerNode, GroupPaths
from ottla.client.consumer_registry.partition_registry import PartitionRegistry, register
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import Event
from ottla.client.membership.tree.membership import TreeMembership
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.destination.local_cluster import LocalCluster, write_local_cluster
from ottla.consumers.effects import Committed, Left, Lost, Start, Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId
from ottla.consumers.share import StreamId
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.session import ZooKeeperSession
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import ChangeResult
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.runtime.event_loop import BlockingLoop
from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper
from tests.command_line import Done, ottla
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

RECORDS = 10
EARLIEST_MS = 1_700_000_000_000
NO_SERVER = "127.0.0.1:1"

_numbers = count(1)


class Site(NamedTuple):
    """A broker, and the ZooKeeper that it shares."""

    bootstrap: str
    connect: str
    host_and_port: str

    @property
    def by_broker(self) -> tuple[str, str]:
        return "--bootstrap-server", self.bootstrap


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with skips_without_zookeeper(), RunningZooKeeper() as zookeeper:
        connect = f"{zookeeper.connect}/groups"
        settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
        with RunningBroker(zookeeper=connect, node_id=1, settings=settings) as broker:
            yield Site(broker.bootstrap, connect, zookeeper.connect)


@pytest.fixture(scope="module")
def cluster(site: Site) -> Iterator[Cluster]:
    with Cluster(site.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two partitions of ten records from long ago, a second between them."""
    name = f"views-{next(_numbers)}"
    Admin(cluster).create_topic(name, 2, configs={"retention.ms": "-1"})
    with RawProducer(cluster) as producer:
        for partition in range(2):
            for number in range(RECORDS):
                record = Record(0, EARLIEST_MS + number * 1_000, None, b"%d" % number)
                producer.send(TopicPartition(name, partition), build_batch([record]))
        producer.flush()
    return name


@pytest.fixture
def group() -> str:
    return f"jobs-{next(_numbers)}"


class Member:
    """A consumer's nodes and the session that owns them."""

    def __init__(self, site: Site, group_id: str, topic: str, client_id: str = "reader") -> None:
        self.loop = BlockingLoop()
        self.session: ZooKeeperSession = self.loop.run(ZooKeeperBackend(site.connect).connect())
        self.paths = GroupPaths.of(group_id)
        self.stream = StreamId("host-1", 0)
        node = ConsumerNode(Subscription({topic: 1}), "host-1", 42, client_id, EARLIEST_MS)
        outcome = self.loop.run(register(self.session, self.paths, self.stream.consumer_id, node))
        assert outcome is ChangeResult.APPLIED

    def claim(self, *partitions: TopicPartition, offset: int) -> None:
        self.loop.run(self._claim(partitions, offset))

    async def _claim(self, partitions: tuple[TopicPartition, ...], offset: int) -> None:
        topics = (await TopicRegistry(self.session).refresh()).by_name
        registry = PartitionRegistry(self.session, self.paths, lambda name: topics[name].topic_id, lambda: EARLIEST_MS)
        nodes = await registry.read(partitions)
        claim_id = ClaimId(self.session.session_id, 1)
        for partition in partitions:
            known = nodes[partition].offset
            version = NO_NODE if known is None else known.version
            writes = [
                Write(1, WriteKind.CLAIM, partition, version, offset, claim_id, self.stream),
                Write(2, WriteKind.COMMIT, partition, version + 1, offset, claim_id, self.stream),
            ]
            for write in writes:
                assert await registry.write([write]) == [ChangeResult.APPLIED]

    def close(self) -> None:
        self.loop.run(self.session.close())
        self.loop.close()


@contextlib.contextmanager
def member(site: Site, group_id: str, topic: str, client_id: str = "reader") -> Iterator[Member]:
    joined = Member(site, group_id, topic, client_id)
    try:
        yield joined
    finally:
        joined.close()


def test_groups_of_both_types_are_listed_together(site: Site, cluster: Cluster, topic: str, group: str) -> None:
    GroupAdmin(cluster).commit(f"{group}-kafka", {TopicPartition(topic, 0): CommittedOffset(4)})
    with member(site, group, topic) as joined:
        joined.claim(TopicPartition(topic, 0), TopicPartition(topic, 1), offset=0)
        names = ottla("group", "list", *site.by_broker).out.split()
        assert {group, f"{group}-kafka"} <= set(names)
        rows = ottla("group", "list", "--long", "--zookeeper", site.connect).rows
        assert [group, "tree", "consumer", "Stable"] in rows
        assert [f"{group}-kafka", "classic", "-", "Empty"] in rows
        assert f"{group}-kafka" not in ottla("group", "list", "--type", "tree", *site.by_broker).out.split()
        assert group not in ottla("group", "list", "--type", "classic", *site.by_broker).out.split()
        assert group not in ottla("group", "list", "--state", "empty", *site.by_broker).out.split()
    shown = [json.loads(line) for line in ottla("group", "list", "--json", *site.by_broker).out.splitlines()]
    assert {"group": group, "type": "tree", "protocol_type": "consumer", "state": "Empty"} in shown


def test_owners_lag_and_partitions_without_an_owner_are_described(site: Site, topic: str, group: str) -> None:
    with member(site, group, topic) as joined:
        joined.claim(TopicPartition(topic, 0), offset=4)
        said = ottla("group", "describe", group, *site.by_broker)
        first, second = said.rows
        assert first[:6] == [group, topic, "0", "4", "10", "6"]
        assert float(first[6]) > 1_000_000, "the fifth record is from long ago"
        assert first[7:] == ["host-1-0", "host-1", "reader"]
        assert second == [group, topic, "1", "-", "10", "-", "-", "-", "-", "-"]
        assert f"note: group {group}: {topic}-1 has no owner: it falls to host-1-0" in said.err
        (stream,) = ottla("group", "describe", group, "--members", *site.by_broker).rows
        assert stream == [group, "host-1-0", "-", "host-1", "reader", "1", f"{topic}-0"]
        (state,) = ottla("group", "describe", group, "--state", *site.by_broker).rows
        assert state == [group, "-", "range", "tree", "Reconciling", "1"]
        (shown,) = [json.loads(ottla("group", "describe", group, "--json", *site.by_broker).out)]
        assert (shown["type"], shown["coordinator"], len(shown["problems"])) == ("tree", None, 1)
        assert shown["offsets"][0]["member_id"] == "host-1-0"
    said = ottla("group", "describe", group, *site.by_broker)
    assert f"note: group {group} has no active members" in said.err
    assert [row[:6] for row in said.rows] == [[group, topic, "0", "4", "10", "6"]]
    assert group in ottla("group", "describe", "--all-groups", "--type", "tree", *site.by_broker).out


def test_text_written_by_other_programs_is_printed_escaped(site: Site, topic: str, group: str) -> None:
    with member(site, group, topic, client_id="\x1b[31mred") as joined:
        joined.claim(TopicPartition(topic, 0), offset=0)
        for what in ([], ["--members"], ["--json"]):
            said = ottla("group", "describe", group, *what, *site.by_broker)
            assert "\x1b" not in said.out + said.err
            assert "x1b[31mred" in said.out or "u001b[31mred" in said.out


def test_running_group_is_reset_and_its_owner_fenced(site: Site, topic: str, group: str) -> None:
    first = TopicPartition(topic, 0)
    with member(site, group, topic) as joined:
        joined.claim(first, offset=4)
        shown = ottla("group", "reset-offsets", group, "--topic", f"{topic}:0", "--to-earliest", *site.by_broker)
        assert shown.rows == [[group, topic, "0", "4", "0"]]
        assert "nothing was changed" in shown.err
        assert ottla("group", "describe", group, *site.by_broker).rows[0][3] == "4"
        ottla("group", "reset-offsets", group, "--topic", f"{topic}:0", "--to-earliest", "--execute", *site.by_broker)
        content = json.loads(joined.loop.run(joined.session.get(joined.paths.offset(first))).data)
        assert (content["offset"], content["claim"]) == (0, None)


def test_running_consumer_releases_and_starts_at_the_reset_offset_without_a_commit(
    site: Site, topic: str, group: str
) -> None:
    first = TopicPartition(topic, 0)
    events: list[Event] = []
    membership = TreeMembership(site.connect, group)
    membership.join(Subscription({topic: 1}), events.extend)
    try:
        (start,) = eventually(lambda: starts(events, first))
        membership.commit([(first, start.claim, 4)])
        eventually(lambda: Committed(first, start.claim, 4) in events)
        reset = ("group", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "2", "--execute")
        ottla(*reset, *site.by_broker)
        (_, again) = eventually(lambda: starts(events, first), lambda seen: len(seen) > 1)
        assert again.offset == 2
        assert events.index(Lost(first, start.claim)) < events.index(again)
        stable = [group, "tree", "consumer", "Stable"]
        eventually(lambda: stable in ottla("group", "list", "--long", *site.by_broker).rows)
        assert [row[3] for row in ottla("group", "describe", group, *site.by_broker).rows] == ["2", "-"]
    finally:
        membership.leave()
        eventually(lambda: Left() in events)
        membership.close()


def starts(events: Sequence[Event], partition: TopicPartition) -> list[Start]:
    return [each for each in events if isinstance(each, Start) and each.partition == partition]


def test_stopped_group_is_reset_exported_and_restored(site: Site, topic: str, group: str, tmp_path: Path) -> None:
    with member(site, group, topic) as joined:
        joined.claim(TopicPartition(topic, 0), TopicPartition(topic, 1), offset=4)
    reset = ("group", "reset-offsets", group)
    backup = tmp_path / "offsets.csv"
    backup.write_text(ottla(*reset, "--all-topics", "--to-current", "--export", *site.by_broker).out)
    assert backup.read_text() == f"{topic},0,4\n{topic},1,4\n"
    ottla(*reset, "--all-topics", "--shift-by", "3", "--execute", *site.by_broker)
    assert [row[3] for row in ottla("group", "describe", group, *site.by_broker).rows] == ["7", "7"]
    moment = "2023-11-14T22:13:25"
    ottla(*reset, "--topic", topic, "--to-datetime", moment, "--execute", "--zookeeper", site.connect)
    assert [row[3] for row in ottla("group", "describe", group, *site.by_broker).rows] == ["5", "5"]
    ottla(*reset, "--from-file", str(backup), "--execute", *site.by_broker)
    assert [row[3] for row in ottla("group", "describe", group, *site.by_broker).rows] == ["4", "4"]


def test_group_of_type_tree_is_created_by_a_reset_that_names_the_type(site: Site, topic: str, group: str) -> None:
    reset = ("group", "reset-offsets", group, "--topic", topic, "--to-latest", "--type", "tree")
    assert "--execute creates it, of type tree" in ottla(*reset, *site.by_broker).err
    without_type = ottla(*reset[:-2], *site.by_broker).err
    assert "--execute creates it, of type classic; --type tree makes one without a master" in without_type
    ottla(*reset, "--execute", *site.by_broker)
    assert [row[:2] for row in ottla("group", "list", "--long", *site.by_broker).rows if row[0] == group] == [
        [group, "tree"]
    ]


def test_two_groups_of_one_name_are_distinguished_by_type(site: Site, cluster: Cluster, topic: str, group: str) -> None:
    GroupAdmin(cluster).commit(group, {TopicPartition(topic, 0): CommittedOffset(1)})
    ottla(
        "group", "reset-offsets", group, "--topic", topic, "--to-latest", "--type", "tree", "--execute", *site.by_broker
    )
    assert len(ottla("group", "describe", group, "--state", *site.by_broker).rows) == 2
    assert [row[3] for row in ottla("group", "describe", group, "--type", "classic", *site.by_broker).rows] == ["1"]
    for verb in (
        ("reset-offsets", group, "--all-topics", "--to-earliest"),
        ("delete", group),
        ("delete-offsets", group, "--topic", topic),
    ):
        said = ottla("group", *verb, *site.by_broker, status=1)
        assert f"error: two groups are named {group}" in said.err
        assert "hint: say which: --type tree" in said.err
    ottla("group", "delete-offsets", group, "--topic", f"{topic}:0", "--type", "tree", *site.by_broker)
    assert [row[2] for row in ottla("group", "describe", group, "--type", "tree", *site.by_broker).rows] == ["1"]
    assert ottla("group", "delete", group, "--type", "tree", *site.by_broker).out == f"deleted group {group}\n"
    assert [row[3] for row in ottla("group", "describe", group, *site.by_broker).rows] == ["1"]


def test_group_with_consumers_keeps_its_offsets(site: Site, topic: str, group: str) -> None:
    with member(site, group, topic) as joined:
        joined.claim(TopicPartition(topic, 0), offset=4)
        said = ottla("group", "delete", group, *site.by_broker, status=1)
        assert f"error: group {group}: it has consumers" in said.err
        said = ottla("group", "delete-offsets", group, "--topic", topic, *site.by_broker, status=1)
        assert "consumers of the group read the topic" in said.err
    ottla("group", "delete", group, *site.by_broker)
    assert ottla("group", "delete", group, "--if-exists", *site.by_broker).out == f"group {group} does not exist\n"


def test_missing_group_is_reported_with_the_nearest_name_of_both_types(site: Site, topic: str, group: str) -> None:
    ottla(
        "group", "reset-offsets", group, "--topic", topic, "--to-latest", "--type", "tree", "--execute", *site.by_broker
    )
    said = ottla("group", "describe", f"{group}x", *site.by_broker, status=1)
    assert f"error: group {group}x does not exist" in said.err
    assert f"hint: did you mean {group}?" in said.err
    said = ottla("group", "describe", group, "--type", "classic", *site.by_broker, status=1)
    assert f"error: a group {group} of type classic does not exist" in said.err


def test_zookeeper_without_a_cluster_is_reported_and_nothing_is_created_there(site: Site) -> None:
    wrong = f"{site.host_and_port}/typo"
    said = ottla("group", "list", "--zookeeper", wrong, status=1)
    assert f"error: there is no cluster at {wrong}" in said.err
    assert "with the chroot at its end" in said.err
    loop = BlockingLoop()
    session = loop.run(ZooKeeperBackend(site.host_and_port).connect())
    assert "typo" not in loop.run(session.children("/"))
    loop.run(session.close())
    loop.close()


def test_zookeeper_that_was_named_and_does_not_answer_is_an_error(site: Site) -> None:
    said = ottla("group", "list", "--zookeeper", NO_SERVER, *site.by_broker, status=1)
    assert f"error: no server of {NO_SERVER} answered" in said.err
    said = ottla("group", "list", "--zookeeper", "no port:x", status=1)
    assert "hint: write it as host:port" in said.err


def test_tree_that_is_closed_is_opened_by_the_brokers_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with skips_without_zookeeper(), RunningZooKeeper() as zookeeper:
        connect = f"{zookeeper.connect}/closed"
        settings = {"offsets.topic.replication.factor": "1", "zookeeper.digest": "ottla:secret"}
        with RunningBroker(zookeeper=connect, node_id=1, settings=settings):
            said = ottla("group", "list", "--zookeeper", connect, status=1)
            assert "belong to another user" in said.err
            assert "hint: give the brokers' zookeeper.digest as OTTLA_ZOOKEEPER_DIGEST" in said.err
            monkeypatch.setenv("OTTLA_ZOOKEEPER_DIGEST", "ottla:secret")
            assert ottla("group", "list", "--zookeeper", connect) == Done(0, b"", b"")


def test_standalone_broker_has_no_groups_of_type_tree() -> None:
    with RunningBroker() as broker:
        assert ottla("group", "list", "-b", broker.bootstrap).err == ""
        for verb in (
            ("list", "--type", "tree"),
            ("describe", "jobs", "--type", "tree"),
            ("reset-offsets", "jobs", "--type", "tree", "--topic", "t", "--to-latest"),
        ):
            said = ottla("group", *verb, "-b", broker.bootstrap, status=1)
            assert "error: these brokers share no ZooKeeper" in said.err
            assert "hint: " in said.err


def test_kafka_groups_are_listed_with_a_note_when_zookeeper_is_unreachable() -> None:
    with skips_without_zookeeper(), RunningZooKeeper() as zookeeper:
        settings = {"offsets.topic.replication.factor": "1"}
        with RunningBroker(zookeeper=f"{zookeeper.connect}/gone", node_id=1, settings=settings) as broker:
            zookeeper.kill()
            said = ottla("group", "list", "-b", broker.bootstrap)
            assert f"note: groups of type tree are not shown: no server of {zookeeper.connect}" in said.err
            said = ottla("group", "list", "--type", "tree", "-b", broker.bootstrap, status=1)
            assert f"error: no server of {zookeeper.connect}" in said.err
            zookeeper.start()


def test_local_cluster_of_this_directory_is_found(
    site: Site, topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla(
        "group", "reset-offsets", group, "--topic", topic, "--to-latest", "--type", "tree", "--execute", *site.by_broker
    )
    os.mkdir(tmp_path / "ottla-cluster")
    ports = (int(site.bootstrap.rpartition(":")[2]),)
    zookeeper_port = int(site.host_and_port.rpartition(":")[2])
    write_local_cluster(tmp_path / "ottla-cluster", LocalCluster(zookeeper_port, ports))
    monkeypatch.chdir(tmp_path)
    assert group in ottla("group", "list", "--type", "tree").out.split()
    assert topic in ottla("topic", "list").out.split()
    assert site.bootstrap in ottla("cluster", "status").out
