"""What a cluster says about itself, asked from outside: leaders that really lead, and replicas in sync."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from tests.peers.answering import NotAnswering

from bench.cluster.peer import ClusterPeer
from bench.wire import NO_SETTINGS, BrokerRefused, PartitionState, Wire

POLL_INTERVAL_S: Final = 0.02
WITHIN_S: Final = 240.0


def wait_for(what: str, is_there: Callable[[], bool], within_s: float = WITHIN_S) -> float:
    """Look until it is there, and give time.monotonic() of then.  A broker that does not answer is asked again."""
    give_up_s = time.monotonic() + within_s
    while True:
        began_s = time.monotonic()
        try:
            if is_there():
                return time.monotonic()
        except (OSError, BrokerRefused):
            pass  # it is starting, stopping or gone
        if time.monotonic() > give_up_s:
            raise NotAnswering(f"waited {within_s:g} s for {what}")
        # Looking is work for the brokers, too: half of the time at most.
        time.sleep(max(POLL_INTERVAL_S, time.monotonic() - began_s))


def create_topic(cluster: ClusterPeer, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
    """With three replicas; wait until all are in sync and the leaders answer."""
    with Wire(any_port(cluster)) as wire:
        wire.ask_for_topic(topic, partitions, len(cluster.ports), settings)
    wait_until_whole(cluster, topic, partitions)


def brokers_seen(cluster: ClusterPeer) -> int:
    """The least that any running broker counts; 0 when one does not answer yet."""
    try:
        counts = []
        for port in cluster.ports.values():
            with Wire(port) as wire:
                counts.append(wire.brokers_count())
    except (OSError, BrokerRefused):
        return 0
    return min(counts, default=0)


def any_port(cluster: ClusterPeer, other_than: int = -1) -> int:
    return next(port for node_id, port in cluster.ports.items() if node_id != other_than)


def states(cluster: ClusterPeer, topic: str, asked: int | None = None) -> list[PartitionState]:
    """As one broker sees them: `asked`, or the first that runs.  In the order of the partitions."""
    with Wire(any_port(cluster) if asked is None else cluster.ports[asked]) as wire:
        return sorted(wire.partitions(topic), key=lambda state: state.index)


def is_led(cluster: ClusterPeer, topic: str, partitions: int, without: int = -1) -> bool:
    """Whether every partition's leader says itself that it leads; metadata may be ahead of it.

    A leader that was just elected gives no latest offset before its high watermark covers its epoch's beginning.
    """
    asked = next(node_id for node_id in cluster.ports if node_id != without)
    seen = states(cluster, topic, asked)
    led = defaultdict(list)
    for state in seen:
        led[state.leader].append(state.index)
    if len(seen) != partitions or not led.keys() <= cluster.ports.keys() - {without}:
        return False
    for leader, indexes in led.items():
        with Wire(cluster.ports[leader]) as wire:
            if None in wire.end_offsets_of(topic, indexes).values():
                return False
    return True


def wait_until_whole(cluster: ClusterPeer, topic: str, partitions: int) -> float:
    """Until all are led and all replicas are in sync, by the metadata of every broker that runs."""
    return wait_for(
        f"{topic} to be led and in sync",
        lambda: (
            all(is_whole(states(cluster, topic, node_id), partitions) for node_id in cluster.ports)
            and is_led(cluster, topic, partitions)
        ),
    )


def is_whole(seen: list[PartitionState], partitions: int) -> bool:
    """Whether all are there, led and in sync: a broker that has just started may know none of them yet."""
    return len(seen) == partitions and all(
        state.leader >= 0 and set(state.in_sync) == set(state.replicas) for state in seen
    )


def spread_leaders(cluster: ClusterPeer, topic: str, partitions: int) -> dict[int, int]:
    """Wait until all is whole and let the preferred replicas lead; partition -> leader."""
    wait_until_whole(cluster, topic, partitions)
    with Wire(any_port(cluster)) as wire:
        wire.elect_preferred(topic, partitions)
    wait_for(
        f"the preferred leaders of {topic}",
        lambda: all(state.leader == state.replicas[0] for state in states(cluster, topic)),
    )
    wait_until_whole(cluster, topic, partitions)
    return {state.index: state.leader for state in states(cluster, topic)}


def group_of(cluster: ClusterPeer, coordinator: int, stem: str) -> str:
    """The name of a group whose coordinator is this broker."""
    found = ""

    def is_there() -> bool:
        nonlocal found
        with Wire(any_port(cluster)) as wire:
            names = (f"{stem}-{index}" for index in range(100))
            found = next((name for name in names if wire.coordinator(name) == coordinator), "")
        return found != ""

    wait_for(f"a group that broker {coordinator} coordinates", is_there)
    return found
