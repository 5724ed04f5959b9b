"""A broker is killed, frozen, stopped, and comes back: what clients feel, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from bench.cluster.clients import Committer, PacedProducer, longest_silence_s
from bench.cluster.peer import BROKERS, HOST, ClusterPeer
from bench.cluster.sizes import QUIET_S, Sizes
from bench.cluster.view import (
    brokers_seen,
    create_topic,
    group_of,
    is_led,
    is_whole,
    spread_leaders,
    states,
    wait_for,
    wait_until_whole,
)
from bench.raw_client.load import VALUE_BYTES, ProduceLoad, put_load
from bench.scenarios.topics import settle_disk
from bench.study import Observed, percentile
from bench.wire import Wire

WATCHED: Final = "watched"
MESSAGES_PER_S: Final = 600
BULK_BATCH: Final = 4000
RECOVERED_WITHIN_S: Final = 90.0
# An answer that was on its way when the broker died comes within it; anything later is of another leader.
ON_ITS_WAY_S: Final = 0.05


def measure_kills(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    """Each broker once: it leads a partition and coordinates a group; both move to other brokers."""
    for victim in sizes.victims:
        observed.add("kill", cluster.name, _kill(cluster, victim))
        cluster.launch(victim)
        _wait_until_back(cluster, victim)


def _kill(cluster: ClusterPeer, victim: int) -> dict[str, float]:
    leaders = _watched_leaders(cluster)
    was_controller = victim == cluster.controller()
    lost = [index for index, leader in leaders.items() if leader == victim]
    with ExitStack() as clients:
        producer = clients.enter_context(PacedProducer(_bootstrap(cluster), WATCHED, BROKERS, MESSAGES_PER_S))
        group = group_of(cluster, victim, "committers")
        committer = clients.enter_context(Committer(_bootstrap(cluster), group, WATCHED))
        committer.wait_for_first()
        time.sleep(2 * QUIET_S)
        killed_s = time.monotonic()
        cluster.kill(victim)
        _wait_until_resumed(lambda: producer.answers_of(lost), killed_s)
        _wait_until_resumed(lambda: committer.committed_s, killed_s)
        time.sleep(QUIET_S)
        until_s = time.monotonic()
    window = (killed_s - QUIET_S / 2, until_s)
    return {
        "without_writes_s": longest_silence_s(producer.answers_of(lost), *window),
        "without_commits_s": longest_silence_s(committer.committed_s, *window),
        "was_controller": float(was_controller),
    }


def measure_pause(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    """A frozen leader refuses no connection: only a time-out shows it.  Until another one leads in its place."""
    victim = sizes.victims[0]
    _watched_leaders(cluster)
    time.sleep(QUIET_S)
    paused_s = time.monotonic()
    cluster.pause(victim)
    try:
        led_s = wait_for("another leader", lambda: is_led(cluster, WATCHED, BROKERS, without=victim))
    finally:
        cluster.resume(victim)
    observed.add("pause", cluster.name, {"until_led_s": led_s - paused_s})
    _wait_until_back(cluster, victim)


def measure_shutdowns(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    """Each broker is stopped, comes back and leads again: what a producer feels of it."""
    for victim in sizes.victims:
        _watched_leaders(cluster)
        with PacedProducer(_bootstrap(cluster), WATCHED, BROKERS, MESSAGES_PER_S) as producer:
            time.sleep(2 * QUIET_S)
            told_s = time.monotonic()
            cluster.terminate(victim)
            cluster.wait_ended(victim)
            ended_s = time.monotonic()
            time.sleep(QUIET_S)
            started_s = time.monotonic()
            cluster.launch(victim)
            _wait_until_back(cluster, victim)
            _watched_leaders(cluster)
            time.sleep(QUIET_S)
            back_s = time.monotonic()
        before_s = producer.latencies_s(told_s - QUIET_S, told_s)
        during_s = producer.latencies_s(told_s, started_s)
        after_s = producer.latencies_s(started_s, back_s)
        figures = {
            "before_p99_ms": percentile(before_s, 0.99) * 1000,
            "shutdown_p99_ms": percentile(during_s, 0.99) * 1000,
            "shutdown_max_ms": max(during_s) * 1000,
            "return_p99_ms": percentile(after_s, 0.99) * 1000,
            "return_max_ms": max(after_s) * 1000,
            "shutdown_s": ended_s - told_s,
        }
        observed.add("shutdown", cluster.name, figures)


def measure_return(cluster: ClusterPeer, sizes: Sizes, observed: Observed) -> None:
    """A broker was away while this much was written; from its process's start until it is in sync again."""
    topic = "bulk"
    create_topic(cluster, topic, 1)
    (state,) = states(cluster, topic)
    victim = next(node_id for node_id in state.replicas if node_id != state.leader)
    cluster.terminate(victim)
    cluster.wait_ended(victim)
    requests = sizes.return_bytes // (BULK_BATCH * VALUE_BYTES)
    result = put_load(ProduceLoad(BULK_BATCH, in_flight=5, requests=requests), cluster.ports[state.leader], topic)
    settle_disk()
    started_s = time.monotonic()
    cluster.launch(victim)
    seconds = wait_for("the broker in sync", lambda: is_whole(states(cluster, topic), 1)) - started_s
    mb = result.records_total * VALUE_BYTES / 1e6
    observed.add("return", cluster.name, {"seconds": seconds, "mb": mb, "mb_per_s": mb / seconds})


def _bootstrap(cluster: ClusterPeer) -> str:
    return ",".join(f"{HOST}:{port}" for port in cluster.ports.values())


def _watched_leaders(cluster: ClusterPeer) -> dict[int, int]:
    """The topic that is watched, each broker leading one of its three partitions: partition -> leader."""
    if not states(cluster, WATCHED):
        create_topic(cluster, WATCHED, BROKERS)
    return spread_leaders(cluster, WATCHED, BROKERS)


def _wait_until_resumed(answers: Callable[[], list[float]], after_s: float) -> None:
    wait_for("writes to continue", lambda: max(answers(), default=0.0) > after_s + ON_ITS_WAY_S, RECOVERED_WITHIN_S)


def _wait_until_back(cluster: ClusterPeer, node_id: int) -> None:
    wait_for("the broker", lambda: node_id in cluster.ports and brokers_seen(cluster) == BROKERS)
    wait_until_whole(cluster, WATCHED, BROKERS)
    offsets = "__consumer_offsets"
    if partitions := len(states(cluster, offsets)):
        wait_until_whole(cluster, offsets, partitions)
        with Wire(cluster.ports[node_id]) as wire:
            wire.elect_preferred(offsets, partitions)
        wait_until_whole(cluster, offsets, partitions)
