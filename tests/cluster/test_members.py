"""Processes of one cluster, over a real ZooKeeper."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ottla.broker.tree.zookeeper_sessions import SESSION_FILE, SessionFile
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.coordination.layout import CLUSTER_ID
from ottla.coordination.node_json import encode
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.testing.broker import BrokerDidNotStart, RunningBroker
from tests.cluster.conftest import Member
from tests.cluster.traffic import consume, make_topic, metadata, produce
from tests.command_line import ottla
from tests.eventually import eventually

ONE_REPLICA = {"offsets_topic_replication_factor": "1"}


def seen_by(broker: RunningBroker) -> dict[int, tuple[str | None, int]]:
    """The brokers in this broker's metadata."""
    found = metadata(broker.bootstrap).brokers
    return {node_id: (each.host, each.port) for node_id, each in found.items()}


def leaders(broker: RunningBroker, topic: str) -> dict[int, int]:
    """Leaders by partition; -1 where this broker knows none."""
    return {index: each.leader for index, each in metadata(broker.bootstrap, topic).topics[topic].partitions.items()}


def end_session(broker: RunningBroker, connect: str) -> None:
    """End its session from outside, as an expiry does, and wait until the broker notices.

    A running broker may reattach its session before it is closed, so the same one is ended until it is lost.
    """
    credentials = SessionFile(PosixDisk(), str(broker.data_dir)).read()
    assert credentials is not None
    losses_count = len(logged(broker, "session.lost"))

    def is_lost() -> bool:
        run(ZooKeeperBackend(connect).end_session(credentials))
        return len(logged(broker, "session.lost")) > losses_count

    eventually(is_lost, every_s=1)


def logged(broker: RunningBroker, event: str) -> list[str]:
    return [line for line in broker.log_lines if f" {event}" in line]


def test_members_serve_one_cluster(member: Member) -> None:
    brokers = [member(node_id, broker_rack=f"r{node_id}", **ONE_REPLICA) for node_id in (1, 2, 3)]
    addresses = {node_id: (broker.host, broker.port) for node_id, broker in enumerate(brokers, 1)}
    for broker in brokers:
        eventually(lambda broker=broker: seen_by(broker), lambda found: found == addresses)  # type: ignore[misc]
    assert len({metadata(broker.bootstrap).cluster_id for broker in brokers}) == 1
    assert {metadata(broker.bootstrap).controller_id for broker in brokers} == {1}

    make_topic(brokers[0].bootstrap, "orders", partitions=6)
    found = eventually(lambda: leaders(brokers[2], "orders"), lambda found: len(found) == 6)
    assert sorted(found.values()) == [1, 1, 2, 2, 3, 3]
    values = [f"order {number}" for number in range(300)]
    produce(brokers[1].bootstrap, "orders", values)
    assert sorted(consume(brokers[2].bootstrap, "orders", 300, "readers")) == sorted(values)


def test_killed_member_restarts_at_once_with_its_records_and_groups(member: Member) -> None:
    brokers = [member(node_id, **ONE_REPLICA) for node_id in (1, 2)]
    make_topic(brokers[0].bootstrap, "orders", partitions=4)
    produce(brokers[0].bootstrap, "orders", [f"before {number}" for number in range(100)])
    consume(brokers[0].bootstrap, "orders", 100, "readers")
    for broker in brokers:
        broker.kill()
        broker.start()
        assert logged(broker, "session.former_ended")
        assert not logged(broker, "broker.id_in_use")
    produce(brokers[1].bootstrap, "orders", [f"after {number}" for number in range(100)])
    # The group continues at its committed offsets.
    found = consume(brokers[1].bootstrap, "orders", 100, "readers")
    assert sorted(found) == sorted(f"after {number}" for number in range(100))


def test_stopped_member_is_unregistered_at_once_and_leads_again_after_its_restart(member: Member) -> None:
    first, second = (member(node_id, zookeeper_session_timeout_ms="30000") for node_id in (1, 2))
    make_topic(first.bootstrap, "orders", partitions=2)
    assert first.stop() == 0
    eventually(lambda: seen_by(second), lambda found: set(found) == {2})
    assert sorted(leaders(second, "orders").values()) == [-1, 2]
    first.start()
    eventually(lambda: leaders(second, "orders"), lambda found: sorted(found.values()) == [1, 2])
    produce(second.bootstrap, "orders", [str(number) for number in range(50)])


def test_member_whose_session_ends_registers_and_leads_again(member: Member, connect: str) -> None:
    first, second = (member(node_id) for node_id in (1, 2))
    make_topic(first.bootstrap, "orders", partitions=4)
    end_session(first, connect)
    eventually(lambda: seen_by(second), lambda found: set(found) == {1, 2})
    eventually(lambda: sorted(leaders(second, "orders").values()), lambda found: found == [1, 1, 2, 2])
    produce(second.bootstrap, "orders", [str(number) for number in range(50)])
    # The file has the key of the next session.
    end_session(first, connect)
    assert len(logged(first, "session.lost")) == 2


async def replace_cluster_id(connect: str, data: bytes) -> bytes:
    """Put another cluster's id into the tree; return the former one."""
    session = await ZooKeeperBackend(connect).connect()
    try:
        before = await session.get(CLUSTER_ID)
        await session.set(CLUSTER_ID, data, before.stat.version)
    finally:
        await session.close()
    return before.data


def test_member_does_not_register_in_the_tree_of_another_cluster(member: Member, connect: str) -> None:
    broker = member(1)
    make_topic(broker.bootstrap, "orders", partitions=2)
    theirs = encode({"version": 1, "id": "0123456789abcdefghijkl"})
    own = run(replace_cluster_id(connect, theirs))
    end_session(broker, connect)
    why = "the ZooKeeper tree to 0123456789abcdefghijkl"
    eventually(lambda: [line for line in logged(broker, "tree.not_followed") if why in line])
    assert sorted(leaders(broker, "orders").values()) == [-1, -1]
    run(replace_cluster_id(connect, own))
    eventually(lambda: sorted(leaders(broker, "orders").values()), lambda found: found == [1, 1])


def test_session_key_is_readable_by_its_owner_only(member: Member) -> None:
    broker = member(1)
    assert stat.S_IMODE((broker.data_dir / SESSION_FILE).stat().st_mode) == 0o600


def refusal(member: Member, node_id: int | None, directory: str | None = None, **settings: str) -> str:
    with pytest.raises(BrokerDidNotStart) as refused:
        member(node_id, directory, **settings)
    return "\n".join([str(refused.value), *refused.value.__notes__])


def test_second_broker_of_one_id_is_refused_when_the_session_timeout_is_over(member: Member) -> None:
    member(1)
    text = refusal(member, 1, "another", zookeeper_session_timeout_ms="1000")
    assert "broker.id_in_use" in text
    assert "broker id 1 is registered by another session" in text
    assert "give each broker its own node id" in text


def test_broker_without_an_id_is_refused_unless_its_directory_has_one(member: Member) -> None:
    assert "needs its own node id" in refusal(member, None, "broker-7")
    member(7).stop()
    again = member(None, "broker-7")
    eventually(lambda: set(seen_by(again)), lambda found: found == {7})


def test_directory_of_another_cluster_is_refused(member: Member, connect: str) -> None:
    member(1).stop()
    assert "has no cluster yet" in refusal(member, 1, zookeeper_connect=f"{connect}/empty")
    member(2, zookeeper_connect=f"{connect}/other")
    assert "belongs to cluster.id" in refusal(member, 1, zookeeper_connect=f"{connect}/other")


def test_directory_of_a_member_does_not_start_standalone(member: Member) -> None:
    stopped = member(1)
    stopped.stop()
    with pytest.raises(BrokerDidNotStart, match="belongs to a broker of a cluster"):
        RunningBroker(stopped.data_dir, settings={"node.id": "1"}).start()
    assert not (stopped.data_dir / "tree.sqlite").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"zookeeper_connect": "127.0.0.1:1"}, "no ZooKeeper gave a session at 127.0.0.1:1 within 500 ms"),
        ({"zookeeper_connect": "a b:1"}, "zookeeper.connect"),
        ({"zookeeper_digest": "no-colon"}, "user:password"),
    ],
)
def test_unusable_zookeeper_is_reported(member: Member, tmp_path: Path, settings: dict[str, str], problem: str) -> None:
    text = refusal(member, 1, **{"zookeeper_connection_timeout_ms": "500", **settings})
    assert problem in text
    assert not list(tmp_path.glob("broker-1/*.log"))


def test_tree_is_closed_to_others_and_the_password_is_hidden(member: Member) -> None:
    broker = member(1, zookeeper_digest="ottla:open-sesame")
    assert not any("open-sesame" in line for line in broker.log_lines)
    text = refusal(member, 2, zookeeper_digest="ottla:shibboleth")
    assert "is closed to the user 'ottla'" in text
    assert "shibboleth" not in text


def test_topic_with_three_replicas_requires_two_in_sync_when_ottla_creates_it(member: Member) -> None:
    brokers = [member(node_id) for node_id in (1, 2, 3)]
    eventually(lambda: seen_by(brokers[0]), lambda found: set(found) == {1, 2, 3})

    def create(name: str, *flags: str) -> None:
        ottla("topic", "create", name, "-b", brokers[0].bootstrap, *flags)

    def min_in_sync(name: str) -> str | None:
        with Cluster(brokers[0].bootstrap) as cluster:
            found = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, name), ["min.insync.replicas"])
        return found["min.insync.replicas"].value

    create("safe", "--replication-factor", "3")
    create("loose", "--replication-factor", "3", "--config", "min.insync.replicas=1")
    create("pair", "--replication-factor", "2")
    assert [min_in_sync(name) for name in ("safe", "loose", "pair")] == ["2", "1", "1"]


AUTHORIZED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}


def test_open_tree_is_refused_with_an_authorizer_until_it_is_closed(member: Member, connect: str) -> None:
    member(1).stop()
    text = refusal(member, 1, **AUTHORIZED)
    assert "zookeeper.digest is not set" in text
    assert "zookeeper.unprotected.unsafely.allowed=true" in text
    text = refusal(member, 1, **AUTHORIZED, zookeeper_digest="ottla:open-sesame")
    assert "any client of ZooKeeper may change the users" in text
    environment = {"OTTLA_ZOOKEEPER_DIGEST": "ottla:open-sesame"}
    done = ottla("cluster", "protect", "--zookeeper", connect, environment=environment)
    assert "belong to ottla" in done.out
    member(1, **AUTHORIZED, zookeeper_digest="ottla:open-sesame")
