"""./dev bench cluster: what the loss and the return of a broker cost, replicated throughput, many partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from bench.cluster.apache_kafka import start_kafka_cluster
from bench.cluster.losses import measure_kills, measure_pause, measure_return, measure_shutdowns
from bench.cluster.ottla import start_ottla_cluster
from bench.cluster.peer import BROKERS, ClusterPeer, StartCluster, cpu_seconds, idle_cores, memory_mb
from bench.cluster.sizes import FULL, QUICK, QUIET_S, Sizes
from bench.cluster.table import cluster_table
from bench.cluster.view import any_port, brokers_seen, create_topic, is_led, states, wait_for, wait_until_whole
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.raw_client.load import LoadFailed, ProduceLoad, put_load
from bench.scenarios.topics import settle_disk
from bench.study import Observed, Study, StudyOptions, percentile, say
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
    """Produce with acks=all to one partition with three replicas: the raw client, one connection to the leader."""
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


TOPIC: Final = "many"
METADATA_ASKED: Final = 20


def measure_many_partitions(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    """A topic of many partitions with three replicas each: created, idle, started again, and one broker killed."""
    count = sizes.partitions
    figures = {f"fresh_{metric}": value for metric, value in memory_mb(cluster).items()}
    began_s = time.monotonic()
    create_topic(cluster, TOPIC, count)
    figures["created_s"] = time.monotonic() - began_s
    time.sleep(QUIET_S)
    figures["idle_cores"] = idle_cores(cluster, sizes.idle_s)
    figures |= memory_mb(cluster) | _metadata(cluster)
    began_s = time.monotonic()
    cluster.stop()
    figures["stop_s"] = time.monotonic() - began_s
    began_s = time.monotonic()
    cluster.start()
    figures["start_led_s"] = wait_for("all to be led", lambda: is_led(cluster, TOPIC, count)) - began_s
    figures["start_in_sync_s"] = wait_until_whole(cluster, TOPIC, count) - began_s
    observed.add(f"partitions-{count}", cluster.name, figures | _failover(cluster, count))


def _metadata(cluster: ClusterPeer) -> dict[str, float]:
    """A request for all topics, on one connection."""
    durations_s = []
    with Wire(any_port(cluster)) as wire:
        for _ in range(METADATA_ASKED):
            began_s = time.perf_counter()
            size_bytes = wire.metadata_bytes()
            durations_s.append(time.perf_counter() - began_s)
    return {"metadata_p50_ms": percentile(durations_s, 0.5) * 1000, "metadata_bytes": float(size_bytes)}


def _failover(cluster: ClusterPeer, count: int) -> dict[str, float]:
    """A broker dies that leads a third of the partitions and is not the controller, where there is one."""
    with Wire(any_port(cluster)) as wire:
        wire.elect_preferred(TOPIC, count)
    time.sleep(QUIET_S)
    wait_until_whole(cluster, TOPIC, count)
    controller = cluster.controller()
    victim = next(node_id for node_id in cluster.ports if node_id != controller)
    moved_count = sum(state.leader == victim for state in states(cluster, TOPIC))
    killed_s = time.monotonic()
    cluster.kill(victim)
    led_s = wait_for("all to be led", lambda: is_led(cluster, TOPIC, count, without=victim)) - killed_s
    launched_s = time.monotonic()
    cluster.launch(victim)
    wait_for("the broker", lambda: victim in cluster.ports and brokers_seen(cluster) == BROKERS)
    back_s = wait_until_whole(cluster, TOPIC, count) - launched_s
    return {"failover_s": led_s, "moved_partitions": float(moved_count), "return_in_sync_s": back_s}


CLUSTERS: Final[Mapping[str, StartCluster]] = {
    APACHE_KAFKA: start_kafka_cluster,
    OTTLA_OS: partial(start_ottla_cluster, "os"),
    OTTLA_ACK: partial(start_ottla_cluster, "ack"),
}
THROUGHPUT: Final = "throughput"
PARTITIONS: Final = "partitions"
# All but the many partitions happen to one cluster, in this order.
PARTS: Final[Mapping[str, Callable[[ClusterPeer, Sizes, Observed], None]]] = {
    THROUGHPUT: measure_throughput,
    "kill": measure_kills,
    "pause": measure_pause,
    "shutdown": measure_shutdowns,
    "return": measure_return,
    PARTITIONS: measure_many_partitions,
}
# A policy decides when a record is stable, which the throughput shows; all else is measured with the default, `ack`.
ONLY_THROUGHPUT: Final = (OTTLA_OS,)


class ClusterRun:
    """The clusters one after another, every second round in the other direction."""

    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL

    def run(self) -> None:
        names = [name for name in CLUSTERS if self._options.has_peer(name)]
        for round_index in range(self._options.rounds):
            for name in names if round_index % 2 == 0 else names[::-1]:
                chosen = [part for part in PARTS if self._has_part(name, part)]
                self._measure(name, [part for part in chosen if part != PARTITIONS])
                self._measure(name, [part for part in chosen if part == PARTITIONS])

    def _has_part(self, name: str, part: str) -> bool:
        return self._options.has_part(part) and (name not in ONLY_THROUGHPUT or part == THROUGHPUT)

    def _measure(self, name: str, parts: list[str]) -> None:
        """These parts with one fresh cluster."""
        if not parts:
            return
        say(f"{name}: a fresh cluster for {', '.join(parts)}")
        with self._observed.may_fail(name), CLUSTERS[name](self._options.work_dir) as cluster:
            wait_for("all brokers", lambda: brokers_seen(cluster) == BROKERS)
            if PARTITIONS not in parts:
                warm_up(cluster, self._sizes)
            for part in parts:
                with self._observed.may_fail(f"{name}, {part}"):
                    PARTS[part](cluster, self._sizes, self._observed)


STUDY: Final = Study(
    name="cluster",
    summary="three brokers: loss and return of one, replicated throughput, many partitions",
    parts=tuple(PARTS),
    peers=tuple(CLUSTERS),
    rounds=1,
    run=lambda options, observed: ClusterRun(options, observed).run(),
    table=cluster_table,
)
