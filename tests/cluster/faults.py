"""Faults that are injected into a cluster under load.

A fault is a plug-in: it strikes, is undone, and returns a text that proves its effect.

A fault that had no effect makes its run void, so each observes its effect from outside: a dead process, a
leader that changed, a server that does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.target import Fault, Target
from tests.eventually import eventually
from tests.history.clients import PARTITIONS_COUNT, TOPIC

# Of a broker with ZooKeeper, as the runs set it.
SESSION_TIMEOUT_MS: Final = 2_000
# Longer than a session: the cluster considers the paused process dead, and it must notice that when it resumes.
PAUSED_S: Final = 2 * SESSION_TIMEOUT_MS / 1000

# A broker without CPU time: for how long, and its share.
STARVED_S: Final = (3.0, 8.0)
STARVED_ON_S: Final = 0.01
STARVED_OFF_S: Final = 0.09
STARVED_SHARE_MIN: Final = 0.5


def killed(target: Target, broker: RunningBroker, what: str) -> str:
    """Kill it, wait for a while, start it again."""
    pid = broker.pid
    broker.kill()
    target.wait_a_while()
    if broker.is_running:
        raise FaultWithoutEffect(f"{what}: process {pid} lives")
    broker.start()
    return f"{what}: broker {broker.node_id}, process {pid} became {broker.pid}"


def kill_leader(target: Target) -> str:
    """kill -9 of a leader, until its partitions are led by others."""
    index = target.random.randrange(PARTITIONS_COUNT)
    leader_id = target.cluster.leader_of(TOPIC, index)
    broker = target.cluster.broker(leader_id)
    broker.kill()
    began_s = time.monotonic()
    follower_id = target.cluster.wait_for_leader(TOPIC, index, other_than=leader_id)
    took_s = time.monotonic() - began_s
    target.wait_a_while()
    broker.start()
    return f"leader killed: {TOPIC}-{index} from {leader_id} to {follower_id} after {took_s:.2f} s"


def kill_broker(target: Target) -> str:
    """kill -9 of any broker; it may be back before others have noticed."""
    return killed(target, target.any_broker(), "broker killed")


def kill_coordinator(target: Target) -> str:
    """kill -9 of the broker that coordinates the group."""
    return killed(target, target.coordinator(), "coordinator killed")


def kill_all(target: Target) -> str:
    """kill -9 of all brokers at once."""
    brokers = list(target.cluster.brokers.values())
    for broker in brokers:
        broker.kill()
    if any(broker.is_running for broker in brokers):
        raise FaultWithoutEffect("all killed: one lives")
    target.cluster.start()
    return f"all {len(brokers)} brokers killed"


def stop_broker(target: Target) -> str:
    """A controlled shutdown and a start, as in a rolling restart."""
    broker = target.any_broker()
    status = broker.stop()
    if status != 0:
        raise FaultWithoutEffect(f"broker {broker.node_id} did not stop cleanly: status {status}")
    broker.start()
    return f"broker {broker.node_id} stopped and started"


def pause_leader(target: Target) -> str:
    """SIGSTOP of a leader for longer than its session: it resumes without any leadership."""
    index = target.random.randrange(PARTITIONS_COUNT)
    leader_id = target.cluster.leader_of(TOPIC, index)
    broker = target.cluster.broker(leader_id)
    broker.pause()
    try:
        time.sleep(PAUSED_S)
        follower_id = target.cluster.wait_for_leader(TOPIC, index, other_than=leader_id)
    finally:
        broker.resume()
    return f"leader paused: {TOPIC}-{index} from {leader_id} to {follower_id}"


def pause_broker(target: Target) -> str:
    """SIGSTOP of any broker, also for less than its session."""
    broker = target.any_broker()
    paused_s = target.random.uniform(0.1, PAUSED_S)
    broker.pause()
    try:
        time.sleep(paused_s)
    finally:
        broker.resume()
    return f"broker {broker.node_id} paused for {paused_s:.1f} s"


def pause_coordinator(target: Target) -> str:
    """SIGSTOP of the broker that coordinates the group, for longer than its session."""
    broker = target.coordinator()
    broker.pause()
    try:
        time.sleep(PAUSED_S)
        successor = eventually(target.coordinator, lambda seen: seen is not broker)
    finally:
        broker.resume()
    return f"coordinator paused: from broker {broker.node_id} to {successor.node_id}"


def starve_broker(target: Target) -> str:
    """It gets a tenth of the CPU time that it needs, in small slices, as on an overloaded machine."""
    broker = target.any_broker()
    began_s = time.monotonic()
    duration_s = target.random.uniform(*STARVED_S)
    stopped_s = 0.0
    while time.monotonic() - began_s < duration_s:
        broker.pause()
        paused_s = time.monotonic()
        try:
            time.sleep(STARVED_OFF_S)
        finally:
            broker.resume()
        stopped_s += time.monotonic() - paused_s
        time.sleep(STARVED_ON_S)
    share = stopped_s / (time.monotonic() - began_s)
    if share < STARVED_SHARE_MIN:
        raise FaultWithoutEffect(f"broker {broker.node_id} was stopped for {share:.0%} of the time only")
    return f"broker {broker.node_id} was stopped for {share:.0%} of {duration_s:.1f} s"


def kill_zookeeper(target: Target) -> str:
    """kill -9 of ZooKeeper, and a start soon."""
    zookeeper = target.cluster.zookeeper
    pid = zookeeper.pid
    zookeeper.kill()
    time.sleep(target.random.uniform(0.1, PAUSED_S))
    if zookeeper.ask("ruok"):
        raise FaultWithoutEffect("ZooKeeper killed: it answers")
    zookeeper.start()
    return f"ZooKeeper killed: process {pid} became {zookeeper.pid}"


def pause_zookeeper(target: Target) -> str:
    """SIGSTOP of ZooKeeper for longer than all sessions."""
    zookeeper = target.cluster.zookeeper
    zookeeper.pause()
    try:
        # Its threads stop one after another, and on a busy machine that takes a while.
        eventually(lambda: zookeeper.ask("ruok", timeout_s=0.1), lambda answer: not answer)
        if zookeeper.ask("ruok", timeout_s=PAUSED_S):
            raise FaultWithoutEffect("ZooKeeper paused: it answers")
    finally:
        zookeeper.resume()
    return f"ZooKeeper paused for {PAUSED_S:.1f} s"


def kill_member(target: Target) -> str:
    target.clients.kill_member()
    return "member killed"


def pause_member(target: Target) -> str:
    target.clients.pause_member()
    return "member paused"


def replace_member(target: Target) -> str:
    target.clients.replace_member()
    return "member replaced"


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-leader": kill_leader,
    "kill-broker": kill_broker,
    "kill-coordinator": kill_coordinator,
    "kill-all": kill_all,
    "stop-broker": stop_broker,
    "pause-leader": pause_leader,
    "pause-broker": pause_broker,
    "pause-coordinator": pause_coordinator,
    "starve-broker": starve_broker,
    "kill-zookeeper": kill_zookeeper,
    "pause-zookeeper": pause_zookeeper,
    "kill-member": kill_member,
    "pause-member": pause_member,
    "replace-member": replace_member,
}
