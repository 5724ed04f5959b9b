"""`./dev chaos connectors --times`: the time of a group from a change until all members consume.

A group of N members, one stream each, and a topic with two partitions for each.  Repeatedly one leaves, one joins,
one is killed, one joins.  The time ends with the first delivery of the last partition by the member that has it after
the change; it starts when a leaving member is requested to close, when a member is killed, and when a joining one has
its interpreter and calls `create_message_streams`.  A killed member is noticed only after its session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tests.connectors.faults import POINT_TO_POINT, Fault, Target
from tests.connectors.homes import SESSION_TIMEOUT_MS, Home, ZooKeeperBackend
from tests.connectors.journal import now_ns
from tests.connectors.run import RunResult, Size, run

PARTITIONS_OF_A_MEMBER: Final = 2
# Of the whole topic: fetches also cost processor time.
MESSAGES_PER_SECOND: Final = 1_000
CHANGES: Final = ("leave one", "join one", "kill one", "join one")


def join_one(target: Target) -> str:
    began_ns = now_ns()
    member = target.crew.join(POINT_TO_POINT)
    return target.consume("join", POINT_TO_POINT, began_ns, [member])


def leave_one(target: Target) -> str:
    member = target.a_member()
    began_ns = now_ns()
    target.crew.leave(member)
    return target.consume("leave", POINT_TO_POINT, began_ns)


def kill_one(target: Target) -> str:
    member = target.a_member()
    began_ns = now_ns()
    target.crew.kill(member)
    return target.consume("kill", POINT_TO_POINT, began_ns)


FAULTS: Final[Mapping[str, Fault]] = {"join one": join_one, "leave one": leave_one, "kill one": kill_one}


def one_broker(directory: Path) -> Home:
    """With a ZooKeeper: two more brokers would take processor time without more evidence."""
    return ZooKeeperBackend(directory, brokers_count=1)


def measure(home: str, make_home: type[Home], count: int, changes_count: int, seed: int) -> RunResult:
    partitions_count = count * PARTITIONS_OF_A_MEMBER
    size = Size(partitions_count, count, 0, 0, MESSAGES_PER_SECOND / partitions_count)
    plan = [change for _ in range(changes_count) for change in CHANGES]
    make = one_broker if home == ZooKeeperBackend.name else make_home
    return run(make, plan, seed=seed, size=size, faults=FAULTS, streams_counts=(1,))


def table(home: str, results: Sequence[tuple[int, RunResult]]) -> str:
    """In Markdown."""
    lines = [
        f"Seconds from a change until all members consume, home {home}, session {SESSION_TIMEOUT_MS / 1000:g} s:",
        "",
        "| members | change | times | median | worst |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {count} | {what} | {len(took)} | {median(took):.2f} | {max(took):.2f} |"
        for count, result in results
        for what, took in sorted(result.took_s.items())
    ]
    return "\n".join(lines)
