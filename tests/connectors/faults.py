"""Faults of the members of groups, and of the servers that the groups depend on.

Each fault strikes, checks its effect, waits until all members consume again, and returns a description; one without
effect makes its run void.
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
from tests.connectors.homes import SESSION_TIMEOUT_MS, TOPIC, BrokerHome, Home, ZooKeeperBackend
from tests.connectors.journal import now_ns
from tests.eventually import eventually

POINT_TO_POINT: Final = "workers"
PUBLISH_SUBSCRIBE: Final = "audit"
MEMBERS_MIN: Final = 2
MEMBERS_MAX: Final = 6
PARTITIONS_MAX: Final = 60
# Partitions that are added each time.
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
    # Seconds from each change until all members consume.
    took_s: dict[str, list[float]] = field(default_factory=dict)

    def consume(self, what: str, group: str, since_ns: int, joining: Sequence[MemberProcess] = ()) -> str:
        """Wait until all members consume.  The time starts when joining members are about to join."""
        everybody_ns = self.crew.wait_until_consuming(group, since_ns, SETTLED_S)
        began_ns = max([since_ns, *(self.crew.joined[member.name].at_ns for member in joining)])
        took_s = (everybody_ns - began_ns) / 1e9
        self.took_s.setdefault(what, []).append(took_s)
        return f"all members of {group} consumed after {took_s:.2f} s"

    def await_all_members(self, group: str, since_ns: int) -> str:
        """The same without a time: a member that keeps its partitions may have had the messages in its buffer."""
        self.crew.wait_until_consuming(group, since_ns, SETTLED_S)
        return f"all members of {group} continued"

    def a_member(self) -> MemberProcess:
        return self.random.choice(self.crew.of_group(POINT_TO_POINT))

    def join(self) -> MemberProcess:
        """A member with a random number of streams and way of committing."""
        return self.crew.join(
            POINT_TO_POINT,
            streams_count=self.random.choice(self.streams_counts),
            commit_every=self.random.choice((0, 0, 7)),
            work_ms=self.work_ms,
        )


# Returns a text that proves its effect.  Raises `FaultWithoutEffect`.
Fault = Callable[[Target], str]


def join(target: Target) -> str:
    """Another member joins."""
    if len(target.crew.of_group(POINT_TO_POINT)) >= MEMBERS_MAX:
        return leave(target)
    began_ns = now_ns()
    member = target.join()
    return f"{member.name} joined; {target.consume('join', POINT_TO_POINT, began_ns, [member])}"


def leave(target: Target) -> str:
    """A member closes regularly."""
    if len(target.crew.of_group(POINT_TO_POINT)) <= MEMBERS_MIN:
        return join(target)
    member = target.a_member()
    began_ns = now_ns()
    target.crew.leave(member)
    return f"{member.name} left; {target.consume('leave', POINT_TO_POINT, began_ns)}"


def kill(target: Target) -> str:
    """kill -9 of a member; another joins only when the group has continued without it."""
    member = target.a_member()
    began_ns = now_ns()
    target.crew.kill(member)
    seen = f"{member.name} was killed; {target.consume('kill', POINT_TO_POINT, began_ns)}"
    if len(target.crew.of_group(POINT_TO_POINT)) < MEMBERS_MIN:
        seen += f"; {join(target)}"
    return seen


def pause_past_session(target: Target) -> str:
    """SIGSTOP until others have all its partitions; then it resumes, and finds that out."""
    member = target.a_member()
    target.crew.look()
    had = {partition for partition, name in target.crew.owners(POINT_TO_POINT).items() if name == member.name}
    if not had:
        raise FaultWithoutEffect(f"{member.name} had no partition to lose")
    began_ns = now_ns()
    target.crew.pause(member)
    try:
        seen = target.consume("pause", POINT_TO_POINT, began_ns)
        kept = {partition for partition, name in target.crew.owners(POINT_TO_POINT).items() if name == member.name}
        if kept:
            raise FaultWithoutEffect(f"{member.name} was stopped, and still had {sorted(kept)}")
    finally:
        woken_ns = now_ns()
        target.crew.resume(member)
    return f"{member.name} was stopped; {seen}; then it woke, {target.consume('wake', POINT_TO_POINT, woken_ns)}"


def pause_briefly(target: Target) -> str:
    """SIGSTOP for less than a session."""
    member = target.a_member()
    began_ns = now_ns()
    target.crew.pause(member)
    time.sleep(_PAUSED_BRIEFLY_S)
    target.crew.resume(member)
    paused_s = (now_ns() - began_ns) / 1e9
    return f"{member.name} was stopped for {paused_s:.2f} s; {target.await_all_members(POINT_TO_POINT, now_ns())}"


def herd(target: Target) -> str:
    """Many members start at once, and leave at once."""
    began_ns = now_ns()
    members = [target.crew.join(POINT_TO_POINT) for _ in range(target.herd_count)]
    seen = target.consume("herd start", POINT_TO_POINT, began_ns, members)
    began_ns = now_ns()
    target.crew.leave(*members)
    return f"{len(members)} joined; {seen}; they left, " + target.consume("herd leave", POINT_TO_POINT, began_ns)


def kill_herd(target: Target) -> str:
    """Several members of all groups are killed at once."""
    members = target.random.sample(target.crew.members, len(target.crew.members) // 2)
    began_ns = now_ns()
    target.crew.kill(*members)
    seen = f"killed: {names(members)}"
    for member in members:
        if member.group != POINT_TO_POINT or len(target.crew.of_group(POINT_TO_POINT)) < MEMBERS_MIN:
            target.crew.join(member.group)
    for group in target.crew.groups:
        seen += "; " + target.consume("many killed", group, began_ns)
    return seen


def storm(target: Target) -> str:
    """Members join, leave, die and are stopped, and no change waits for the last one."""
    crew = target.crew
    began_ns = now_ns()
    seen = []
    for _ in range(STORM_CHANGES):
        change = target.random.choice(("join", "join", "leave", "kill", "pause"))
        if change == "join" or len(crew.of_group(POINT_TO_POINT)) <= MEMBERS_MIN:
            seen.append(f"{target.join().name} joined")
        elif change == "leave":
            member = target.a_member()
            crew.leave(member)
            seen.append(f"{member.name} left")
        elif change == "kill":
            member = target.a_member()
            crew.kill(member)
            seen.append(f"{member.name} was killed")
        else:
            member = target.a_member()
            crew.pause(member)
            time.sleep(target.random.uniform(*STORM_PAUSED_S))
            crew.resume(member)
            seen.append(f"{member.name} was stopped")
        time.sleep(target.random.uniform(0, STORM_PACE_S))
    return f"{', '.join(seen)}; {target.await_all_members(POINT_TO_POINT, began_ns)}"


def grow(target: Target) -> str:
    """The topic gets more partitions, which the members find automatically."""
    count = target.crew.partitions_count + GROWTH
    if count > PARTITIONS_MAX:
        return join(target)
    began_ns = now_ns()
    target.home.grow_topic(count)
    target.crew.feed(count, target.per_second)
    return f"{TOPIC} has {count} partitions; " + target.consume("partitions added", POINT_TO_POINT, began_ns)


def reset_offsets(target: Target) -> str:
    """An operator resets a running group to earlier offsets; the messages between are delivered again."""
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
        seen = target.await_all_members(POINT_TO_POINT, now_ns())
    finally:
        crew.disturbed("offsets reset", began_ns)
    return f"all partitions were set back by {SET_BACK_BY}, and delivered from there again; {seen}"


def kill_broker(target: Target) -> str:
    """kill -9 of a leader."""
    assert isinstance(target.home, BrokerHome | ZooKeeperBackend)
    began_ns = now_ns()
    seen = target.home.kill_broker(target.random)
    recovered = target.await_all_members(POINT_TO_POINT, now_ns())
    target.crew.disturbed("broker killed", began_ns)
    return f"{seen}; {recovered}"


def restart_zookeeper(target: Target) -> str:
    """kill -9 of ZooKeeper, and a start before or after the session time-out."""
    assert isinstance(target.home, ZooKeeperBackend)
    began_ns = now_ns()
    seen = target.home.restart_zookeeper(target.random)
    recovered = [target.await_all_members(group, now_ns()) for group in target.crew.groups]
    target.crew.disturbed("ZooKeeper restarted", began_ns)
    return f"{seen}; {'; '.join(recovered)}"


def pause_zookeeper(target: Target) -> str:
    assert isinstance(target.home, ZooKeeperBackend)
    began_ns = now_ns()
    seen = target.home.pause_zookeeper()
    recovered = [target.await_all_members(group, now_ns()) for group in target.crew.groups]
    target.crew.disturbed("ZooKeeper stopped", began_ns)
    return f"{seen}; {'; '.join(recovered)}"


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
