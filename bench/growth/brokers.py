"""Three brokers, then nine on the same machine: what a request costs all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bench.cluster.apache_kafka import start_kafka_cluster
from bench.cluster.ottla import start_ottla_cluster
from bench.cluster.peer import ClusterPeer, cpu_seconds, memory_mb
from bench.cluster.view import any_port, brokers_seen, spread_leaders, wait_for
from bench.growth.load import CLIENT_SHARE, CPU_US, REQUESTS_PER_S, RSS_MB, latencies
from bench.growth.sizes import Sizes
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.raw_client.load import LoadResult, ProduceLoad, put_load
from bench.scenarios.topics import settle_disk
from bench.study import ROUND, Observed, say
from bench.wire import NO_SETTINGS, Wire

# Each broker of three leads six of them, each of nine two; a connection for each.
PARTITIONS: Final = 18
REPLICAS: Final = 3
# (records per batch, requests in flight on each connection)
SHAPES: Final = ((1, 5), (50, 5))
WARM_OTTLA_S: Final = 1.0


class StartBrokers(Protocol):
    """A fresh cluster of so many brokers, as `StartCluster`."""

    def __call__(self, work_dir: Path, *, brokers: int) -> AbstractContextManager[ClusterPeer]: ...


CLUSTERS: Final[Mapping[str, StartBrokers]] = {
    APACHE_KAFKA: start_kafka_cluster,
    OTTLA_OS: partial(start_ottla_cluster, "os"),
    OTTLA_ACK: partial(start_ottla_cluster, "ack"),
}


def measure_brokers(name: str, count: int, work_dir: Path, sizes: Sizes, round_index: int, observed: Observed) -> None:
    """A fresh cluster; a topic with three replicas, whose partitions are spread over all brokers."""
    say(f"{name}: {count} brokers")
    with CLUSTERS[name](work_dir, brokers=count) as cluster:
        wait_for("all brokers", lambda: brokers_seen(cluster) == count)
        topic = "spread"
        with Wire(any_port(cluster)) as wire:
            wire.ask_for_topic(topic, PARTITIONS, REPLICAS, NO_SETTINGS)
        leaders = spread_leaders(cluster, topic, PARTITIONS)
        ports = tuple(cluster.ports[leaders[index]] for index in range(PARTITIONS))
        warm_s = sizes.warm_s if name == APACHE_KAFKA else WARM_OTTLA_S
        for batch_records, in_flight in SHAPES:
            put_spread_load(cluster, batch_records, in_flight, warm_s / 2, ports)
        for batch_records, in_flight in SHAPES:
            settle_disk()
            cpu_before = cpu_seconds(cluster)
            result = put_spread_load(cluster, batch_records, in_flight, sizes.seconds, ports)
            figures = {
                ROUND: round_index,
                REQUESTS_PER_S: result.requests_per_s,
                **latencies(result),
                CPU_US: (cpu_seconds(cluster) - cpu_before) / result.requests_total * 1e6,
                CLIENT_SHARE: result.client_cpu_share,
                RSS_MB: memory_mb(cluster)["rss_mb"],
            }
            observed.add(f"brokers-{count}-b{batch_records}-f{in_flight}", name, figures)


def put_spread_load(
    cluster: ClusterPeer, batch_records: int, in_flight: int, seconds: float, ports: tuple[int, ...]
) -> LoadResult:
    load = ProduceLoad(
        batch_records, in_flight, PARTITIONS, seconds=seconds, connections=PARTITIONS, leader_ports=ports
    )
    return put_load(load, any_port(cluster), "spread")
