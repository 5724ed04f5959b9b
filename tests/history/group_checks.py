"""Checks of consumer groups: who owns a partition, whose commits count, and that every record reaches a member."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tests.history.log_checks import VersionOrder
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
    """A commit is refused when its member's generation of the partition has ended before the commit started.

    A later assignment to another member does not prove that: its callback may run late, when its own
    generation has ended already.  The proof is a higher generation, where the libraries expose generations, or a
    commit of the other one that started after this member was given the partition and was accepted.
    """
    # (time, order at the same time, operation): a commit that started in the very instant of a hand-over is ambiguous.
    events: list[tuple[int, int, Positioned | Commit]] = []
    for operation in operations:
        if isinstance(operation, Commit) and operation.outcome is Outcome.OK:
            events += [(operation.invoked_ns, 0, operation), (operation.completed_ns, 2, operation)]
        elif isinstance(operation, Positioned):
            events.append((operation.at_ns, 1, operation))
    ownership: dict[int, _Ownership] = defaultdict(_Ownership)
    for _, order, operation in sorted(events, key=lambda event: event[:2]):
        of_partition = ownership[operation.partition]
        if isinstance(operation, Positioned):
            of_partition.given[operation.process] = operation
        elif order == 2:
            of_partition.accepted[operation.process] = operation
        else:
            for other in sorted(of_partition.successors(operation.process)):
                where = f"partition {operation.partition} offset {operation.offset}"
                report.add(Anomaly.STALE_COMMIT, f"{where}: by {operation.process}, when {other} had it")


class _Ownership:
    """The assignments and commits of one partition so far."""

    def __init__(self) -> None:
        # The time of each member's last assignment, and of its last accepted commit.
        self.given: dict[str, Positioned] = {}
        self.accepted: dict[str, Commit] = {}

    def successors(self, member: str) -> set[str]:
        """Members that certainly were given the partition in a later generation than this one."""
        own = self.given.get(member)
        if own is None:
            return set(self.given)
        by_generation = {other for other, theirs in self.given.items() if -1 < own.generation < theirs.generation}
        by_commit = {other for other, theirs in self.accepted.items() if theirs.invoked_ns > own.at_ns}
        return by_generation | by_commit - {member}


def check_commits(commits: Iterable[Commit], reads: Iterable[Committed], report: Report) -> None:
    """An acknowledged commit, or a later one, is read back; successive commits increase.

    Members commit only records that they read from the committed offset on, so no legal commit is lower than an
    acknowledged one that was complete when it started.
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


def check_resets(
    operations: Iterable[Operation], order: VersionOrder, members: Collection[str], report: Report
) -> None:
    """A member that receives a partition starts at the committed offset: not below one that was acknowledged before
    it was given the partition, and with no record between the highest offset that may be committed and its first.

    A partition that a member keeps in a rebalance continues from the member's own position, which other checks judge.
    """
    known = {partition: sorted(offsets) for partition, offsets in order.items()}
    # (time, order at the same time, operation): completion in the very instant of a hand-over is ambiguous.
    events: list[tuple[int, int, Positioned | Revoked | Poll | Commit]] = []
    for operation in operations:
        if operation.process not in members:
            continue
        if isinstance(operation, Commit):
            # Refused ones count as attempted: a library retries after a lost response, and reports the last response.
            events.append((operation.invoked_ns, 0, operation))
            if operation.outcome is Outcome.OK:
                events.append((operation.completed_ns, 3, operation))
        elif isinstance(operation, Positioned | Revoked):
            events.append((operation.at_ns, 1, operation))
        elif isinstance(operation, Poll) and operation.records:
            events.append((operation.completed_ns, 2, operation))
    acknowledged: dict[int, int] = defaultdict(int)
    tried: dict[int, int] = defaultdict(int)
    # The partitions of each member, with the lowest legal position until it has read, then None.
    held: dict[tuple[str, int], int | None] = {}
    for _, place, operation in sorted(events, key=lambda event: event[:2]):
        partition, owned = operation.partition, (operation.process, operation.partition)
        if isinstance(operation, Commit):
            of_all = acknowledged if place == 3 else tried
            of_all[partition] = max(of_all[partition], operation.offset)
        elif isinstance(operation, Positioned):
            held.setdefault(owned, acknowledged[partition])
        elif isinstance(operation, Revoked):
            held.pop(owned, None)
        elif (least := held.get(owned)) is not None:
            held[owned] = None
            first = operation.records[0][0]
            where = f"{operation.process} partition {partition}: read from {first} on"
            offsets = known[partition]
            skipped_count = bisect_left(offsets, first) - bisect_left(offsets, tried[partition])
            if first < least:
                report.add(Anomaly.RESET, f"{where}, {least} was committed")
            elif skipped_count > 0:
                report.add(Anomaly.RESET, f"{where}, {tried[partition]} at most was committed: {skipped_count} skipped")


def check_delivery(sends: Iterable[Send], polls: Iterable[Poll], members: Collection[str], report: Report) -> None:
    """At least once: every acknowledged record was given to some member of the group."""
    given = {(poll.partition, value) for poll in polls if poll.process in members for _, value in poll.records}
    for send in sends:
        if send.outcome is Outcome.OK and (send.partition, send.value) not in given:
            report.add(Anomaly.NOT_DELIVERED, f"partition {send.partition} offset {send.offset} value {send.value}")
