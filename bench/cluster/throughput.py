"""Produce with acks=all to one partition with three replicas: the raw client, one connection to the leader."""

from __future__ import annotations

from typing import Final

from bench.cluster.peer import ClusterPeer, cpu_seconds, memory_mb
from bench.cluster.sizes import Sizes
from bench.cluster.view import create_topic, states
from bench.peers.names import APACHE_KAFKA
from bench.raw_client.load import LoadFailed, ProduceLoad, put_load
from bench.scenarios.topics import settle_disk
from bench.study import Observed
from bench.wire import Wire

# (records per batch, requests in flight)
SHAPES: Final = ((1, 5), (1, 100), (50, 5), (4000, 5))
# A fresh partition's first batches open files: paid once, no part of a rate.
TOUCH: Final = ProduceLoad(batch_records=50, in_flight=5, requests=4)
WARM_OTTLA_S: Final = 3.0


def warm_up(cluster: ClusterPeer, sizes: Sizes) -> None:
    """A topic for each broker: placement lets them lead in turn."""
    seconds = sizes.warm_s if cluster.name == APACHE_KAFKA else WARM_OTTLA_S
    for index in range(len(cluster.ports)):
        topic = f"warm-{index}"
        create_topic(cluster, topic, 1)
        for batch_records, in_flight in ((1, 100), (50, 5)):
            load = ProduceLoad(batch_records, in_flight, seconds=seconds / 6, warmup_s=0)
            put_load(load, cluster.ports[states(cluster, topic)[0].leader], topic)


def measure_throughput(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    for batch_records, in_flight in SHAPES:
        scenario = f"throughput-b{batch_records}-f{in_flight}"
        create_topic(cluster, scenario, 1)
        port = cluster.ports[states(cluster, scenario)[0].leader]
        put_load(TOUCH, port, scenario)
        settle_disk()
        cpu_before = cpu_seconds(cluster)
        result = put_load(ProduceLoad(batch_records, in_flight, seconds=sizes.seconds), port, scenario)
        cpu_s = cpu_seconds(cluster) - cpu_before
        figures = {
            "requests_per_s": result.requests_per_s,
            "records_per_s": result.records_per_s,
            "mb_per_s": result.mb_per_s,
            "p50_ms": result.p50_us / 1000,
            "p99_ms": result.p99_us / 1000,
            "cluster_cpu_us_per_request": cpu_s / result.requests_total * 1e6,
            "client_cpu_share": result.client_cpu_share,
        }
        with Wire(port) as wire:
            stored = wire.end_offsets(scenario, 1)[0]
        expected = result.records_total + TOUCH.batch_records * TOUCH.requests
        if stored != expected:
            raise LoadFailed(f"{cluster.name}, {scenario}: {expected:.0f} records acknowledged, {stored} stored")
        observed.add(scenario, cluster.name, figures)
    observed.add("memory-loaded", cluster.name, memory_mb(cluster))
