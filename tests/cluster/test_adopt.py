"""A standalone broker becomes the first one of a cluster, with its records, ids and committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.admin.access import create_acls, describe_acls, describe_users, set_password
from ottla.client.wire.cluster import Cluster
from ottla.coordination import layout
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.inspection import inspect_tree
from ottla.coordination.zookeeper.security import client_security
from ottla.runtime.event_loop import run
from ottla.security.acl import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.broker import BrokerDidNotStart, RunningBroker
from tests.cluster.conftest import Member
from tests.cluster.traffic import consume, make_topic, metadata, produce
from tests.command_line import Done, ottla
from tests.eventually import eventually
from tests.running_processes import Processes, processes


def adopt(data_dir: Path, connect: str, config: Path | None = None) -> Done:
    more = () if config is None else ("--config", config)
    return ottla("cluster", "adopt", "--data-dir", data_dir, "--zookeeper", connect, *more, status=None)


@pytest.fixture
def single(tmp_path: Path) -> RunningBroker:
    """A stopped standalone broker: 100 records in "orders", of which "readers" has read 60."""
    with RunningBroker(tmp_path / "single") as broker:
        make_topic(broker.bootstrap, "orders", partitions=2, config={"retention.ms": "123456789"})
        produce(broker.bootstrap, "orders", [f"first {number}" for number in range(60)])
        consume(broker.bootstrap, "orders", 60, "readers")
        produce(broker.bootstrap, "orders", [f"second {number}" for number in range(40)])
    return broker


def test_adopted_records_ids_and_offsets_continue_in_the_cluster(
    single: RunningBroker, member: Member, connect: str
) -> None:
    done = adopt(single.data_dir, connect)
    assert done.status == 0, done.err
    assert "of the tree moved and read back" in done.out
    first = member(None, "single")
    second = member(2)
    found = eventually(lambda: metadata(second.bootstrap), lambda found: set(found.brokers) == {0, 2})
    assert found.cluster_id == metadata(first.bootstrap).cluster_id
    assert {each.leader for each in found.topics["orders"].partitions.values()} == {0}
    assert sorted(consume(second.bootstrap, "orders", 40, "readers")) == sorted(f"second {n}" for n in range(40))
    produce(second.bootstrap, "orders", ["third"])
    assert consume(second.bootstrap, "orders", 1, "readers") == ["third"]


def leaders_of_orders(at: Processes | RunningBroker) -> dict[int, int]:
    return {index: each.leader for index, each in metadata(at.bootstrap).topics["orders"].partitions.items()}


def test_processes_of_one_machine_become_brokers_of_the_cluster(tmp_path: Path, member: Member, connect: str) -> None:
    with processes(tmp_path / "single", "--listen", "127.0.0.1:0", "--processes", "2") as running:
        running.start()
        make_topic(running.bootstrap, "orders", partitions=4)
        produce(running.bootstrap, "orders", [f"first {number}" for number in range(60)])
        assert len(consume(running.bootstrap, "orders", 60, "readers")) == 60
        produce(running.bootstrap, "orders", [f"second {number}" for number in range(40)])
        leaders = leaders_of_orders(running)
        refused = adopt(running.data_dir, connect)
        assert (refused.status, "is in use by process" in refused.err) == (1, True)
        assert running.stop() == 0
    done = adopt(running.data_dir, connect)
    assert done.status == 0, done.err
    assert done.out.count("ottla serve --data-dir ") == 2
    assert "was moved before" in adopt(running.data_dir, connect).out
    assert "its topics are in the cluster's ZooKeeper" in ottla("serve", "--data-dir", running.data_dir, status=1).err
    first, _ = member(None, "single"), member(None, "single/processes/broker-1")
    assert {*leaders.values()} == {0, 1}
    eventually(lambda: leaders_of_orders(first), lambda found: found == leaders)
    assert sorted(consume(first.bootstrap, "orders", 40, "readers")) == sorted(f"second {n}" for n in range(40))


def test_users_acls_and_rights_come_along(tmp_path: Path, connect: str) -> None:
    """From a broker that has them to nodes that only the brokers can read."""
    digest = tmp_path / "digest"
    digest.write_text("brokers:secret\n")
    digest.chmod(0o600)
    config = tmp_path / "server.properties"
    config.write_text(
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:ANONYMOUS\n"
        f"zookeeper.digest.file={digest}\n"
    )
    settings = dict(line.split("=", 1) for line in config.read_text().splitlines())
    acl = Acl(
        ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "orders"),
        AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
    )
    with RunningBroker(tmp_path / "single", settings=settings) as single, Cluster(single.bootstrap) as cluster:
        set_password(cluster, "alice", Secret("secret of alice"), [SaslMechanism.SCRAM_SHA_512])
        assert create_acls(cluster, [acl]) == {acl: None}
    done = adopt(single.data_dir, connect, config)
    assert done.status == 0, done.err
    assert f"--config {config}" in done.out
    broker = RunningBroker(tmp_path / "single", settings={**settings, "zookeeper.connect": connect})
    with broker, Cluster(broker.bootstrap) as cluster:
        assert list(describe_users(cluster)) == ["alice"]
        assert describe_acls(cluster, AclFilter()) == [acl]
    assert inspect_tree(connect, client_security({"zookeeper.digest": "brokers:secret"}), 30.0).open_paths == []


def test_adopted_directory_does_not_start_standalone(single: RunningBroker, connect: str) -> None:
    assert adopt(single.data_dir, connect).status == 0
    with pytest.raises(BrokerDidNotStart, match="belongs to a broker of a cluster"):
        single.start()
    again = adopt(single.data_dir, connect)
    assert again.status == 0
    assert "was moved before" in again.out


def test_running_broker_is_not_moved(tmp_path: Path, connect: str) -> None:
    with RunningBroker(tmp_path / "running") as broker:
        refused = adopt(broker.data_dir, connect)
    assert refused.status != 0
    assert "stop the broker first" in refused.err


def test_tree_in_use_is_refused(single: RunningBroker, member: Member, connect: str) -> None:
    member(1)
    refused = adopt(single.data_dir, connect)
    assert refused.status != 0
    assert "the tree is not empty" in refused.err
    # The directory is unchanged.
    with single:
        assert "orders" in metadata(single.bootstrap).topics


def test_no_member_starts_on_an_incomplete_tree(single: RunningBroker, member: Member, connect: str) -> None:
    assert adopt(single.data_dir, connect).status == 0

    async def leave_note() -> None:
        session = await ZooKeeperBackend(connect).connect()
        await session.create(layout.ADOPTION, b"{}")
        await session.close()

    run(leave_note())
    with pytest.raises(BrokerDidNotStart, match="wait for `ottla cluster adopt`"):
        member(None, "single")
    # Repeating the command completes it.
    assert adopt(single.data_dir, connect).status == 0
    member(None, "single")


def test_new_directory_cannot_be_adopted(tmp_path: Path, connect: str) -> None:
    (tmp_path / "new").mkdir()
    refused = adopt(tmp_path / "new", connect)
    assert refused.status != 0
    assert "nothing to move" in refused.err
