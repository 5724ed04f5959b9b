"""Checks of consumer groups: who owns a partition, whose commits count, and that every record reaches a member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tests.history.operations import Commit, Committed, Operation, Outcome, Poll, Positioned, Revoked, Send
from tests.history.report import Anomaly, Report


def check_owners(operations: Iterable[Operation], members: Collection[str], report: Report) -> None:
    """In one generation a partition has one owner."""
    owner_of: dict[tuple[int, int], str] = {}
    for operation in operations:
        if not isinstance(operation, Positioned) or operation.generation < 0 or operation.process not in members:
            continue
        owner = owner_of.setdefault((operation.generation, operation.partition), operation.process)
        if owner != operation.process:
            where = f"partition {operation.partition} generation {operation.generation}"
            report.add(Anomaly.DOUBLE_OWNER, f"{where}: {owner} and {operation.process}")


def check_stale_commits(operations: Sequence[Operation], report: Report) -> None:
    """A commit that began when another member owned the partition already is refused.

    A member owns a partition from the moment it was given it until it gives it up or another one is given it.
    """
    # (time, order at the same time, operation): a commit that began in the very instant of a hand-over is in doubt.
    events: list[tuple[int, int, Positioned | Revoked | Commit]] = []
    for operation in operations:
        if isinstance(operation, Commit):
            if operation.outcome is Outcome.OK:
                events.append((operation.invoked_ns, 0, operation))
        elif isinstance(operation, Positioned | Revoked):
            events.append((operation.at_ns, 1, operation))
    owner_of: dict[int, str] = {}
    for _, _, operation in sorted(events, key=lambda event: event[:2]):
        owner = owner_of.get(operation.partition)
        if isinstance(operation, Positioned):
            owner_of[operation.partition] = operation.process
        elif isinstance(operation, Revoked):
            if owner == operation.process:
                del owner_of[operation.partition]
        elif owner is not None and owner != operation.process:
            where = f"partition {operation.partition} offset {operation.offset}"
            report.add(Anomaly.STALE_COMMIT, f"{where}: by {operation.process}, when {owner} had it")


def check_commits(commits: Iterable[Commit], reads: Iterable[Committed], report: Report) -> None:
    """What was acknowledged as committed is read back, or something later; commits that follow each other rise.

    Members commit only what they were given, from the committed offset on, so no legal commit is lower than an
    acknowledged one that was complete when it began.
    """
    events: list[tuple[int, int, Commit | Committed, bool]] = []
    for commit in commits:
        if commit.outcome is Outcome.OK:
            events.append((commit.invoked_ns, 0, commit, False))
            events.append((commit.completed_ns, 1, commit, True))
    events += [(read.invoked_ns, 0, read, False) for read in reads]
    acknowledged: dict[int, int] = defaultdict(lambda: -1)
    for _, _, operation, is_complete in sorted(events, key=lambda event: event[:2]):
        known = acknowledged[operation.partition]
        if is_complete:
            acknowledged[operation.partition] = max(known, operation.offset)
        elif operation.offset < known:
            where = f"{operation.process} partition {operation.partition}: {operation.offset} after {known}"
            is_read = isinstance(operation, Committed)
            report.add(Anomaly.COMMIT_LOST if is_read else Anomaly.COMMIT_WENT_BACK, where)


def check_delivery(sends: Iterable[Send], polls: Iterable[Poll], members: Collection[str], report: Report) -> None:
    """At least once: every acknowledged record was given to some member of the group."""
    given = {(poll.partition, value) for poll in polls if poll.process in members for _, value in poll.records}
    for send in sends:
        if send.outcome is Outcome.OK and (send.partition, send.value) not in given:
            report.add(Anomaly.NOT_DELIVERED, f"partition {send.partition} offset {send.offset} value {send.value}")
