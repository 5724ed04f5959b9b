"""Partitions of the network, where some nodes reach a broker and others do not, and links that lose packets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.faults import SESSION_TIMEOUT_MS
from tests.cluster.fencing import watch_the_fence
from tests.cluster.lossy_links import LinkQuality
from tests.cluster.network import Direction
from tests.cluster.servability import ALL
from tests.cluster.site import CLIENTS, ZOOKEEPER, broker_name
from tests.cluster.target import Fault, Target, group_coordinated_by

# Also for less than a session, and long enough for a session to end and an election to follow.
CUT_S: Final = (0.5, 3.5 * SESSION_TIMEOUT_MS / 1000)

# Longer than a client may be silent, and what is watched when the leader is connected again.
WAITED_S: Final = (12.0, 25.0)
AFTER_S: Final = 5.0

# A long-distance link over bad radio.
LOSSY: Final = LinkQuality(delay_ms=50, jitter_ms=50, loss=0.05, duplication=0.1)
LOSSY_S: Final = (4.0, 12.0)
_PACKETS_MIN: Final = 200
# The clock of the switch may be late, and never early.
_DELAY_MS_MIN: Final = 0.7 * LOSSY.delay_ms


def leader_from_followers(target: Target) -> str:
    """No follower fetches from it, and it can still change the state: nothing below `min.insync.replicas` is
    acknowledged."""
    broker = target.leader()
    return cut(target, broker_name(broker.node_id or 0), _others(target, broker))


def leader_from_zookeeper(target: Target) -> str:
    """It is replaced without notice, while clients and followers reach it: its lease must end before."""
    return watch_the_fence(target, [ZOOKEEPER])


def leader_from_zookeeper_with_waiting_clients(target: Target) -> str:
    """Others lead when its session has ended: clients that wait at it, and know only it, must find the new leaders.

    From ZooKeeper only, or from its followers too; also one way.  The checker judges how long each client was silent.
    """
    broker = target.leader()
    others, direction = target.random.choice(
        [
            ([ZOOKEEPER], Direction.BOTH),
            ([ZOOKEEPER], Direction.IN),
            ([ZOOKEEPER], Direction.OUT),
            ([ZOOKEEPER, *_others(target, broker)], Direction.BOTH),
        ]
    )
    name, network = broker_name(broker.node_id or 0), target.site.network
    duration_s = target.random.uniform(*WAITED_S)
    node_id = broker.node_id or 0
    with target.clients.waiting(broker.bootstrap, partial(group_coordinated_by, target.cluster, node_id)):
        network.wall(name, others, direction)
        try:
            time.sleep(duration_s)
        finally:
            stopped_count = network.open(name)
        time.sleep(AFTER_S)
    if stopped_count == 0:
        raise FaultWithoutEffect(f"the wall of {name} stopped nothing")
    way = "" if direction is Direction.BOTH else f" (one way: {direction.name})"
    return f"{name} cut off from {', '.join(others)}{way} for {duration_s:.1f} s under waiting clients"


def leader_alone(target: Target) -> str:
    """From all nodes."""
    broker = target.leader()
    return cut(target, broker_name(broker.node_id or 0), [*_others(target, broker), ZOOKEEPER, CLIENTS])


def leader_from_clients(target: Target) -> str:
    return cut(target, broker_name(target.leader().node_id or 0), [CLIENTS])


def brokers_in_a_ring(target: Target) -> str:
    """Two of them do not see each other; both see the third, ZooKeeper and the clients."""
    first, second = target.random.sample(sorted(target.cluster.brokers), 2)
    return cut(target, broker_name(first), [broker_name(second)])


def zookeeper_alone(target: Target) -> str:
    """From all brokers: all sessions end, and no broker can change the state."""
    return cut(target, ZOOKEEPER, [broker_name(node_id) for node_id in target.cluster.brokers])


def one_way(target: Target) -> str:
    """Packets from a leader arrive and packets to it do not, or the reverse."""
    broker = target.leader()
    others = target.random.choice([[ZOOKEEPER], _others(target, broker), [CLIENTS]])
    direction = target.random.choice([Direction.IN, Direction.OUT])
    # Its session survives in the other cases, so no other broker leads.
    with target.servability.suspended(*(() if others == [ZOOKEEPER] else ALL)):
        return cut(target, broker_name(broker.node_id or 0), others, direction)


def lossy_between_brokers(target: Target) -> str:
    return _degrade(target, _brokers(target))


def lossy_to_zookeeper(target: Target) -> str:
    return _degrade(target, [*_brokers(target), ZOOKEEPER])


def lossy_to_clients(target: Target) -> str:
    return _degrade(target, [*_brokers(target), CLIENTS])


def lossy_everywhere(target: Target) -> str:
    return _degrade(target, [*_brokers(target), ZOOKEEPER, CLIENTS])


def _degrade(target: Target, names: Sequence[str]) -> str:
    """50 +- 50 ms, so packets overtake each other; 5 % are lost and 10 % come twice."""
    duration_s = target.random.uniform(*LOSSY_S)
    acknowledged_count = target.acknowledged_count()
    with target.site.network.degraded(names, LOSSY, target.random.randrange(1 << 30)) as end:
        time.sleep(duration_s)
        acknowledged_count = target.acknowledged_count() - acknowledged_count
        figures = end()
    if figures.packets_count < _PACKETS_MIN or not figures.lost_count or not figures.doubled_count:
        raise FaultWithoutEffect(f"the links of {', '.join(names)} were not bad: {figures}")
    if figures.mean_delay_ms < _DELAY_MS_MIN:
        raise FaultWithoutEffect(f"the links of {', '.join(names)} were fast: {figures}")
    if not target.site.network.reaches(names[0], names[1]):
        raise FaultWithoutEffect(f"{names[0]} does not reach {names[1]} without the switch")
    shown = f"bad links between {', '.join(names)} for {duration_s:.1f} s: {figures}"
    return f"{shown}; {acknowledged_count} records acknowledged meanwhile"


def _brokers(target: Target) -> list[str]:
    return [broker_name(node_id) for node_id in sorted(target.cluster.brokers)]


def cut(target: Target, name: str, others: Iterable[str], direction: Direction = Direction.BOTH) -> str:
    apart = sorted(others)
    network = target.site.network
    duration_s = target.random.uniform(*CUT_S)
    network.wall(name, apart, direction)
    try:
        if network.reaches(apart[0], name):
            raise FaultWithoutEffect(f"{apart[0]} reaches {name} through a wall")
        time.sleep(duration_s)
    finally:
        stopped_count = network.open(name)
    if stopped_count == 0:
        raise FaultWithoutEffect(f"the wall of {name} stopped nothing")
    if not network.reaches(apart[0], name):
        raise FaultWithoutEffect(f"{apart[0]} does not reach {name} without a wall")
    way = "" if direction is Direction.BOTH else f" (one way: {direction.name})"
    return f"{name} cut off from {', '.join(apart)}{way} for {duration_s:.1f} s: {stopped_count} packets stopped"


def _others(target: Target, broker: RunningBroker) -> Sequence[str]:
    return [broker_name(node_id) for node_id in target.cluster.brokers if node_id != broker.node_id]


NETWORK_FAULTS: Final[Mapping[str, Fault]] = {
    "leader-from-followers": leader_from_followers,
    "leader-from-zookeeper": leader_from_zookeeper,
    "leader-from-zookeeper-with-waiting-clients": leader_from_zookeeper_with_waiting_clients,
    "leader-from-clients": leader_from_clients,
    "leader-alone": leader_alone,
    "brokers-in-a-ring": brokers_in_a_ring,
    "zookeeper-alone": zookeeper_alone,
    "one-way": one_way,
    "lossy-between-brokers": lossy_between_brokers,
    "lossy-to-zookeeper": lossy_to_zookeeper,
    "lossy-to-clients": lossy_to_clients,
    "lossy-everywhere": lossy_everywhere,
}
