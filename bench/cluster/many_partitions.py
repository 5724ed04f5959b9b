"""A topic of many partitions with three replicas each: made, idle, started again, and one broker killed."""

from __future__ import annotations

import time
from typing import Final

from bench.cluster.peer import BROKERS, ClusterPeer, idle_cores, memory_mb
from bench.cluster.sizes import QUIET_S, Sizes
from bench.cluster.view import any_port, brokers_seen, create_topic, is_led, states, wait_for, wait_until_whole
from bench.study import Observed, percentile
from bench.wire import Wire

TOPIC: Final = "many"
METADATA_ASKED: Final = 20


def measure_many_partitions(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
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
