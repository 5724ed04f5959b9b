"""The study of three brokers: its arithmetic, its table, and its requests to real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from bench.cluster.clients import longest_silence_s
from bench.cluster.ottla import OttlaCluster
from bench.cluster.table import cluster_table
from bench.cluster.view import brokers_seen, create_topic, group_of, is_led, spread_leaders, states, wait_for
from bench.study import Observed
from bench.wire import Wire

from tests.eventually import eventually
from tests.peers.apache_kafka import ApacheKafka
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    with skips_without_zookeeper():
        running = OttlaCluster("os", tmp_path_factory.mktemp("three-brokers"))
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.mark.parametrize(
    ("answered_s", "silence_s"),
    [([1.0, 2.0, 6.5, 7.0], 4.5), ([], 10.0), ([9.0], 9.0), ([-3.0, 1.0, 12.0], 9.0), ([4.0, 1.0, 7.0], 3.0)],
)
def test_silence_is_the_longest_time_between_two_answers_of_the_window(
    answered_s: list[float], silence_s: float
) -> None:
    assert longest_silence_s(answered_s, 0.0, 10.0) == silence_s


def test_table_shows_medians_spreads_and_ratios_of_measurements_only() -> None:
    observed = Observed({})
    for seconds in (0.4, 0.2, 0.3):
        observed.add("kill", "ottla-ack", {"without_writes_s": seconds})
    observed.add("kill", "apache-kafka", {"without_writes_s": 9.0})
    observed.add("partitions-2000", "ottla-ack", {"rss_mb": 240.0})
    observed.add("throughput-b1-f5", "ottla-os", {"requests_per_s": 3000.0})
    observed.add("throughput-b1-f5", "apache-kafka", {"requests_per_s": 1000.0})
    rows = cluster_table(observed).splitlines()
    assert "| kill -9 of a leader: s without writes | - | 0.3 (0.2..0.4) | 9 | - | 0.033x | ≤ 0.5x |" in rows
    assert "| 2,000 partitions: memory of all processes, MB | - | 240 | - | - | - | ≤ 0.15x |" in rows
    assert "| batches of 1, 5 in flight: requests/s | 3,000 | - | 1,000 | 3x | - | os ≥ 2x, ack ≥ 1x |" in rows
    assert not any("return to ISR" in row for row in rows)


def test_topic_is_whole_with_a_leader_on_each_broker_once_the_preferred_ones_lead(cluster: OttlaCluster) -> None:
    create_topic(cluster, "whole", 3)
    assert sorted(spread_leaders(cluster, "whole", 3).values()) == [1, 2, 3]
    assert all(set(state.in_sync) == {1, 2, 3} for state in states(cluster, "whole"))


def test_partitions_are_not_led_until_their_leaders_confirm_it(cluster: OttlaCluster) -> None:
    create_topic(cluster, "led", 3)
    assert is_led(cluster, "led", 3)
    assert not is_led(cluster, "led", 4), "one is missing"
    assert not is_led(cluster, "led", 3, without=2), "a broker leads that is not to count"


def test_groups_are_found_by_their_coordinator(cluster: OttlaCluster) -> None:
    for node_id in cluster.ports:
        name = group_of(cluster, node_id, "sought")
        with Wire(cluster.ports[node_id]) as wire:
            # A broker learns a new leader of the groups' partition when its view of the tree is updated.
            eventually(partial(wire.coordinator, name), node_id.__eq__)


def test_broker_that_was_killed_is_counted_out_and_in_again(cluster: OttlaCluster) -> None:
    cluster.kill(3)
    assert set(cluster.pids()) == {"broker 1", "broker 2", "ZooKeeper"}
    wait_for("two brokers", lambda: brokers_seen(cluster) == 2)
    cluster.launch(3)
    wait_for("three brokers", lambda: brokers_seen(cluster) == 3)


def test_requests_of_the_study_are_answered_by_apache_kafka(kafka: ApacheKafka) -> None:
    with Wire(kafka.port) as wire:
        wire.create_topic("asked", 2)
        wire.elect_preferred("asked", 2)
        assert wire.brokers_count() == 1
        assert wire.quorum_leader() == 1
        assert wire.metadata_bytes() > len("asked")
        assert [state.in_sync for state in wire.partitions("asked")] == [(1,), (1,)]
