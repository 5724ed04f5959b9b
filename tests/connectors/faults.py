"""What is done to the members of groups, and to what their groups rest on.

Each fault strikes, looks for its effect, waits until everybody consumes again, and returns what was seen; one that had
no effect makes its run void.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.connectors.crew import Crew, MemberProcess, names
from tests.connectors.homes import SESSION_TIMEOUT_MS, TOPIC, BrokerHome, Home, ZooKeeperHome
from tests.connectors.journal import now_ns
from tests.eventually import eventually

POINT_TO_POINT: Final = "workers"
PUBLISH_SUBSCRIBE: Final = "audit"
MEMBERS_MIN: Final = 2
MEMBERS_MAX: Final = 6
PARTITIONS_MAX: Final = 60
# As many partitions more each time.
GROWTH: Final = 4
SETTLED_S: Final = 1.0
SET_BACK_BY: Final = 5
STORM_CHANGES: Final = 8
STORM_PACE_S: Final = 0.4
# Shorter and longer than a session.
STORM_PAUSED_S: Final = (0.1, 1.5 * SESSION_TIMEOUT_MS / 1000)
_PAUSED_BRIEFLY_S: Final = 0.3 * SESSION_TIMEOUT_MS / 1000


@dataclass
class Target:
    home: Home
    crew: Crew
    random: random.Random
    # To each partition.
    per_second: float
    herd_count: int
    # A member that joins has one of these.
    streams_counts: Sequence[int]
    work_ms: float
    # Seconds from each change to everybody consuming.
    took_s: dict[str, list[float]] = field(default_factory=dict)

    def consume(self, what: str, group: str, since_ns: int, joining: Sequence[MemberProcess] = ()) -> str:
        """Wait until everybody does.  The time begins when those that join have their interpreters and are about to."""
        everybody_ns = self.crew.wait_until_consuming(group, since_ns, SETTLED_S)
        began_ns = max([since_ns, *(self.crew.joined[member.name].at_ns for member in joining)])
        took_s = (everybody_ns - began_ns) / 1e9
        self.took_s.setdefault(what, []).append(took_s)
        return f"everybody of {group} consumed after {took_s:.2f} s"

    def await_everybody(self, group: str, since_ns: int) -> str:
        """The same without a time: who goes on with what it had may have had it in its buffer."""
        self.crew.wait_until_consuming(group, since_ns, SETTLED_S)
        return f"everybody of {group} went on"

    def a_member(self) -> MemberProcess:
        return self.random.choice(self.crew.of_group(POINT_TO_POINT))

    def join(self) -> MemberProcess:
        """One with some streams, of some manner of committing."""
        return self.crew.join(
            POINT_TO_POINT,
            streams_count=self.random.choice(self.streams_counts),
            commit_every=self.random.choice((0, 0, 7)),
            work_ms=self.work_ms,
        )


# Returns what shows that it was done.  Raises `FaultWithoutEffect`.
Fault = Callable[[Target], str]


def join(target: Target) -> str:
    """One more."""
    if len(target.crew.of_group(POINT_TO_POINT)) >= MEMBERS_MAX:
        return leave(target)
    began_ns = now_ns()
    member = target.join()
    return f"{member.name} joined; {target.consume('join', POINT_TO_POINT, began_ns, [member])}"


def leave(target: Target) -> str:
    """One closes as it should."""
    if len(target.crew.of_group(POINT_TO_POINT)) <= MEMBERS_MIN:
        return join(target)
    member = target.a_member()
    began_ns = now_ns()
    target.crew.leave(member)
    return f"{member.name} left; {target.consume('leave', POINT_TO_POINT, began_ns)}"


def kill(target: Target) -> str:
    """kill -9 of one, and another comes only when the group has gone on without it."""
    member = target.a_member()
    began_ns = now_ns()
    target.crew.kill(member)
    told = f"{member.name} was killed; {target.consume('kill', POINT_TO_POINT, began_ns)}"
    if len(target.crew.of_group(POINT_TO_POINT)) < MEMBERS_MIN:
        told += f"; {join(target)}"
    return told


def pause_past_session(target: Target) -> str:
    """SIGSTOP until others have everything that it had; then it wakes up, and finds that out."""
    member = target.a_member()
    target.crew.look()
    had = {partition for partition, name in target.crew.owners(POINT_TO_POINT).items() if name == member.name}
    if not had:
        raise FaultWithoutEffect(f"{member.name} had no partition to lose")
    began_ns = now_ns()
    target.crew.pause(member)
    try:
        told = target.consume("pause", POINT_TO_POINT, began_ns)
        kept = {partition for partition, name in target.crew.owners(POINT_TO_POINT).items() if name == member.name}
        if kept:
            raise FaultWithoutEffect(f"{member.name} was stopped, and still had {sorted(kept)}")
    finally:
        woken_ns = now_ns()
        target.crew.resume(member)
    return f"{member.name} was stopped; {told}; then it woke, {target.consume('wake', POINT_TO_POINT, woken_ns)}"


def pause_briefly(target: Target) -> str:
    """SIGSTOP for less than a session."""
    member = target.a_member()
    began_ns = now_ns()
    target.crew.pause(member)
    time.sleep(_PAUSED_BRIEFLY_S)
    target.crew.resume(member)
    paused_s = (now_ns() - began_ns) / 1e9
    return f"{member.name} was stopped for {paused_s:.2f} s; {target.await_everybody(POINT_TO_POINT, now_ns())}"


def herd(target: Target) -> str:
    """Many start at once, and leave at once."""
    began_ns = now_ns()
    members = [target.crew.join(POINT_TO_POINT) for _ in range(target.herd_count)]
    told = target.consume("herd start", POINT_TO_POINT, began_ns, members)
    began_ns = now_ns()
    target.crew.leave(*members)
    return f"{len(members)} joined; {told}; they left, " + target.consume("herd leave", POINT_TO_POINT, began_ns)


def kill_herd(target: Target) -> str:
    """Several are killed at once, of all groups."""
    members = target.random.sample(target.crew.members, len(target.crew.members) // 2)
    began_ns = now_ns()
    target.crew.kill(*members)
    told = f"killed: {names(members)}"
    for member in members:
        if member.group != POINT_TO_POINT or len(target.crew.of_group(POINT_TO_POINT)) < MEMBERS_MIN:
            target.crew.join(member.group)
    for group in target.crew.groups:
        told += "; " + target.consume("many killed", group, began_ns)
    return told


def storm(target: Target) -> str:
    """Members come, leave, die and stand still, and the next change does not wait for the last one."""
    crew = target.crew
    began_ns = now_ns()
    told = []
    for _ in range(STORM_CHANGES):
        change = target.random.choice(("join", "join", "leave", "kill", "pause"))
        if change == "join" or len(crew.of_group(POINT_TO_POINT)) <= MEMBERS_MIN:
            told.append(f"{target.join().name} joined")
        elif change == "leave":
            member = target.a_member()
            crew.leave(member)
            told.append(f"{member.name} left")
        elif change == "kill":
            member = target.a_member()
            crew.kill(member)
            told.append(f"{member.name} was killed")
        else:
            member = target.a_member()
            crew.pause(member)
            time.sleep(target.random.uniform(*STORM_PAUSED_S))
            crew.resume(member)
            told.append(f"{member.name} was stopped")
        time.sleep(target.random.uniform(0, STORM_PACE_S))
    return f"{', '.join(told)}; {target.await_everybody(POINT_TO_POINT, began_ns)}"


def grow(target: Target) -> str:
    """The topic gets more partitions, which the members find by themselves."""
    count = target.crew.partitions_count + GROWTH
    if count > PARTITIONS_MAX:
        return join(target)
    began_ns = now_ns()
    target.home.grow_topic(count)
    target.crew.feed(count, target.per_second)
    return f"{TOPIC} has {count} partitions; " + target.consume("partitions added", POINT_TO_POINT, began_ns)


def reset_offsets(target: Target) -> str:
    """An operator sets a running group back; what lies between is handed out again."""
    crew = target.crew
    began_ns = now_ns()
    command = [sys.executable, "-m", "ottla", "group", "reset-offsets", POINT_TO_POINT, "--all-topics", "--execute"]
    command += ["--bootstrap-server", target.home.bootstrap, "--shift-by", str(-SET_BACK_BY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        crew.problems.append(f"reset-offsets ended with status {done.returncode}: {done.stdout}{done.stderr}")
        return "nothing was reset"
    try:
        eventually(lambda: crew.not_repeated(POINT_TO_POINT, began_ns), lambda missing: not missing)
        told = target.await_everybody(POINT_TO_POINT, now_ns())
    finally:
        crew.disturbed("offsets reset", began_ns)
    return f"all partitions were set back by {SET_BACK_BY}, and handed out from there again; {told}"


def kill_broker(target: Target) -> str:
    """kill -9 of a leader."""
    assert isinstance(target.home, BrokerHome | ZooKeeperHome)
    began_ns = now_ns()
    told = target.home.kill_broker(target.random)
    recovered = target.await_everybody(POINT_TO_POINT, now_ns())
    target.crew.disturbed("broker killed", began_ns)
    return f"{told}; {recovered}"


def restart_zookeeper(target: Target) -> str:
    """kill -9 of ZooKeeper, and a start before or after its sessions' time."""
    assert isinstance(target.home, ZooKeeperHome)
    began_ns = now_ns()
    told = target.home.restart_zookeeper(target.random)
    recovered = [target.await_everybody(group, now_ns()) for group in target.crew.groups]
    target.crew.disturbed("ZooKeeper restarted", began_ns)
    return f"{told}; {'; '.join(recovered)}"


def pause_zookeeper(target: Target) -> str:
    assert isinstance(target.home, ZooKeeperHome)
    began_ns = now_ns()
    told = target.home.pause_zookeeper()
    recovered = [target.await_everybody(group, now_ns()) for group in target.crew.groups]
    target.crew.disturbed("ZooKeeper stopped", began_ns)
    return f"{told}; {'; '.join(recovered)}"


MEMBER_FAULTS: Final[Mapping[str, Fault]] = {
    "join": join,
    "leave": leave,
    "kill": kill,
    "pause-past-session": pause_past_session,
    "pause-briefly": pause_briefly,
    "herd": herd,
    "kill-herd": kill_herd,
    "storm": storm,
    "grow": grow,
}
BROKER_FAULTS: Final[Mapping[str, Fault]] = {**MEMBER_FAULTS, "kill-broker": kill_broker}
ZOOKEEPER_FAULTS: Final[Mapping[str, Fault]] = {
    **BROKER_FAULTS,
    "restart-zookeeper": restart_zookeeper,
    "pause-zookeeper": pause_zookeeper,
    "reset-offsets": reset_offsets,
}
FAULTS_OF: Final[Mapping[str, Mapping[str, Fault]]] = {
    "zookeeper": ZOOKEEPER_FAULTS,
    "broker": BROKER_FAULTS,
    "apache-kafka": MEMBER_FAULTS,
}
