"""Three brokers, and a copy of a data directory that is put back after all of them were killed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from ottla.cli.cluster.rejoin import command as rejoin
from ottla.cli.log.verb import command as log_command
from ottla.records.record import decode_batch, split_batches
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.checkpoints import read_generation, read_high_watermarks
from ottla.testing.broker import BrokerDidNotStart
from ottla.testing.cluster import RunningCluster
from tests.cluster.traffic import consume, make_topic, produce
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC = "orders"
ALONE = "alone"
EARLIER = [f"{number:0100d}" for number in range(1_000)]
LATER = [f"{number:0100d}" for number in range(1_000, 4_000)]
# The generation moves within ten seconds after records.
MOVED_WITHIN_S = 60
READ_WITHIN_S = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with skips_without_zookeeper():
        cluster = RunningCluster(3, settings={"zookeeper.session.timeout.ms": "4000"}, has_zookeeper=True)
    with cluster:
        make_topic(cluster.bootstrap, TOPIC, replicas=3, config={"min.insync.replicas": "2"})
        cluster.wait_for_isr(TOPIC, 0)
        produce(cluster.bootstrap, TOPIC, EARLIER, acks="all")
        yield cluster


def directory_of(cluster: RunningCluster, node_id: int) -> Path:
    return cluster.broker(node_id).data_dir


def copied(cluster: RunningCluster, node_id: int) -> Path:
    copy = cluster.data_dir / f"copy-{node_id}"
    shutil.copytree(directory_of(cluster, node_id), copy)
    return copy


def put_back(cluster: RunningCluster, node_id: int, copy: Path) -> None:
    shutil.rmtree(directory_of(cluster, node_id))
    copy.rename(directory_of(cluster, node_id))


def kill_all(cluster: RunningCluster) -> None:
    for broker in cluster.brokers.values():
        broker.kill()


def generation_of(directory: Path) -> int:
    return read_generation(PosixDisk(), str(directory))


def wait_for_watermark(cluster: RunningCluster, node_id: int, high_watermark: int) -> None:
    """A follower receives the high watermark after the acknowledgement, and restores it from the checkpoint."""
    directory = str(directory_of(cluster, node_id))
    eventually(
        lambda: {(name.topic, end) for name, end in read_high_watermarks(PosixDisk(), directory).items()},
        lambda found: (TOPIC, high_watermark) in found,
    )


def check_refused(cluster: RunningCluster, node_id: int) -> None:
    before = {path.name: path.read_bytes() for path in (directory_of(cluster, node_id) / f"{TOPIC}-0").iterdir()}
    with pytest.raises(BrokerDidNotStart) as caught:
        cluster.broker(node_id).start()
    error = caught.value
    told = "\n".join([str(error), error.hint or "", *error.__notes__])
    assert "is a copy of an earlier time" in told, told
    assert f"ottla cluster rejoin --data-dir {directory_of(cluster, node_id)}" in told, told
    assert "directory.found_stale" in told, told
    after = {path.name: path.read_bytes() for path in (directory_of(cluster, node_id) / f"{TOPIC}-0").iterdir()}
    assert after == before, "a copy that is refused stays as it is"


def accept(cluster: RunningCluster, node_id: int) -> None:
    result = CliRunner().invoke(rejoin, ["--data-dir", str(directory_of(cluster, node_id))])
    assert result.exit_code == 0, result.output


def check_nothing_is_lost(cluster: RunningCluster) -> None:
    """Without a group: two brokers do not make the topic of the committed offsets."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    give_up_s = time.monotonic() + READ_WITHIN_S
    try:
        while len(found) < len(EARLIER + LATER):
            assert time.monotonic() < give_up_s, f"{len(found)} records in {READ_WITHIN_S} s"
            for message in consumer.consume(1_000, 1.0):
                error = message.error()
                assert error is None or error.retriable(), error
                if error is None:
                    found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    assert found == EARLIER + LATER


def check_rejoins(cluster: RunningCluster, node_id: int) -> None:
    cluster.broker(node_id).start()
    cluster.wait_for_isr(TOPIC, 0)
    cluster.wait_until_replicated()
    logs = [sorted((directory_of(cluster, each) / f"{TOPIC}-0").glob("*.log")) for each in cluster.brokers]
    assert len({b"".join(path.read_bytes() for path in log) for log in logs}) == 1, "the replicas differ"
    check_nothing_is_lost(cluster)


def test_copy_of_an_earlier_life_is_refused_and_is_refilled_once_it_is_accepted(cluster: RunningCluster) -> None:
    cluster.broker(3).stop()
    copy = copied(cluster, 3)
    cluster.broker(3).start()
    cluster.wait_for_isr(TOPIC, 0)
    produce(cluster.bootstrap, TOPIC, LATER, acks="all")
    kill_all(cluster)
    put_back(cluster, 3, copy)
    # Started alone, as the one that would reaffirm its state and lead.
    check_refused(cluster, 3)
    for node_id in (1, 2):
        cluster.broker(node_id).launch()
    for node_id in (1, 2):
        cluster.broker(node_id).wait_until_ready()
    check_nothing_is_lost(cluster)
    check_refused(cluster, 3)
    accept(cluster, 3)
    check_rejoins(cluster, 3)
    cluster.broker(3).stop()
    # The rejoined directory is a normal one from now on.
    check_rejoins(cluster, 3)


def test_copy_of_the_same_life_is_refused_and_is_refilled_once_it_is_accepted(cluster: RunningCluster) -> None:
    copy = copied(cluster, 3)
    copied_generation = generation_of(copy)
    produce(cluster.bootstrap, TOPIC, LATER, acks="all")
    eventually(lambda: generation_of(directory_of(cluster, 3)) > copied_generation, within_s=MOVED_WITHIN_S)
    # The directory's generation moves first, and the tree's follows at once.
    moved_generation = generation_of(directory_of(cluster, 3))
    eventually(lambda: tree_generation(cluster, 3) >= moved_generation, within_s=MOVED_WITHIN_S)
    kill_all(cluster)
    put_back(cluster, 3, copy)
    check_refused(cluster, 3)
    accept(cluster, 3)
    # It starts alone, and waits for a replica that is complete.
    cluster.broker(3).start()
    for node_id in (1, 2):
        cluster.broker(node_id).launch()
    for node_id in (1, 2):
        cluster.broker(node_id).wait_until_ready()
    cluster.wait_for_isr(TOPIC, 0)
    check_nothing_is_lost(cluster)


def test_copy_of_a_running_broker_is_refused_after_its_ordered_stop(cluster: RunningCluster) -> None:
    copy = copied(cluster, 3)
    produce(cluster.bootstrap, TOPIC, LATER, acks="all")
    cluster.broker(3).stop()
    put_back(cluster, 3, copy)
    check_refused(cluster, 3)


def test_only_replica_leads_with_an_accepted_copy_and_the_others_wait_for_an_operator(
    cluster: RunningCluster,
) -> None:
    make_topic(cluster.bootstrap, ALONE, partitions=6, replicas=1)
    produce(cluster.bootstrap, ALONE, EARLIER, acks="all")
    copies = {}
    for node_id in cluster.brokers:
        cluster.broker(node_id).stop()
        copies[node_id] = copied(cluster, node_id)
        cluster.broker(node_id).start()
    kill_all(cluster)
    for node_id, copy in copies.items():
        put_back(cluster, node_id, copy)
        accept(cluster, node_id)
    cluster.start()
    for index in range(6):
        cluster.wait_for_leader(ALONE, index)
    assert sorted(consume(cluster.bootstrap, ALONE, len(EARLIER), "alone")) == EARLIER
    eventually(lambda: any("log.stale_one_is_kept" in line for line in cluster.broker(3).log_lines))
    partition = cluster.partition(TOPIC, 0)
    assert partition is not None
    assert partition.leader_id == -1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(TOPIC, 0)]).result(60)
    cluster.wait_for_isr(TOPIC, 0)
    assert consume(cluster.bootstrap, TOPIC, len(EARLIER), "reader") == EARLIER


def test_followers_keep_their_truncated_records_when_a_stale_copy_leads(cluster: RunningCluster) -> None:
    cluster.broker(3).stop()
    copy = copied(cluster, 3)
    cluster.broker(3).start()
    cluster.wait_for_isr(TOPIC, 0)
    produce(cluster.bootstrap, TOPIC, LATER, acks="all")
    for node_id in (1, 2):
        wait_for_watermark(cluster, node_id, len(EARLIER) + len(LATER))
    for node_id in (1, 2):
        cluster.broker(node_id).stop()
    cluster.broker(3).kill()
    put_back(cluster, 3, copy)
    forget_generation(cluster, 3)
    cluster.broker(3).start()
    cluster.wait_for_leader(TOPIC, 0)
    for node_id in (1, 2):
        cluster.broker(node_id).start()
    cluster.wait_for_isr(TOPIC, 0)
    for node_id in (1, 2):
        lines = cluster.broker(node_id).log_lines
        assert any("ERROR" in line and "log.cut_below_watermark" in line for line in lines), lines
        (kept,) = directory_of(cluster, node_id).glob(f"{TOPIC}-0.*-cut")
        content = b"".join(path.read_bytes() for path in sorted(kept.glob("*.log")))
        records = (record for batch in split_batches(memoryview(content)) for record in decode_batch(batch))
        assert [(record.value or b"").decode() for record in records] == LATER
        dumped = CliRunner().invoke(log_command, ["dump", str(kept)])
        assert dumped.exit_code == 0, dumped.output


def forget_generation(cluster: RunningCluster, node_id: int) -> None:
    """As after an upgrade from a version without generations."""
    with tree_of(cluster) as client:
        client.delete(f"/brokers/generations/{node_id}")


def tree_generation(cluster: RunningCluster, node_id: int) -> int:
    with tree_of(cluster) as client:
        data, _ = client.get(f"/brokers/generations/{node_id}")
        return int(json.loads(data)["generation"])


@contextmanager
def tree_of(cluster: RunningCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.connect)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()
