"""The history checker: from the operations of clients to the anomalies that must never happen (docs/invariants.md).

It trusts neither the broker nor itself: test_checker.py plants each anomaly and requires that it is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tests.history import group_checks, log_checks
from tests.history.operations import (
    Commit,
    Committed,
    LatestOffset,
    Operation,
    Outcome,
    Poll,
    Positioned,
    Send,
    Snapshot,
    Watermark,
)
from tests.history.report import Report

# The process that reads every partition from its beginning, after all faults have ended.
FINAL_READER: Final = "final-reader"


def check(
    history: Iterable[Operation],
    members: Collection[str] = (),
    *,
    silence_ns_max: int = log_checks.SILENCE_NS_MAX,
) -> Report:
    """All anomalies of a history.  `members` are the processes of one consumer group, whose records must arrive."""
    told = settled_commits(history)
    snapshots = [operation for operation in told if isinstance(operation, Snapshot)]
    # The rules for a consumer also hold for a reader of a partition from its start.
    operations: list[Operation] = [*told, *(snapshot.poll for snapshot in snapshots)]
    # A producer records a send when it starts and again when it is settled: the last record counts.
    begun = (operation for operation in operations if isinstance(operation, Send))
    sends = list({(send.partition, send.value): send for send in begun}.values())
    polls = [operation for operation in operations if isinstance(operation, Poll)]
    sends, unplaced = log_checks.placed(sends, polls)
    commits = [operation for operation in operations if isinstance(operation, Commit)]
    order = log_checks.version_order(sends, polls)
    report = Report()
    report.figures.update(
        operations=len(told),
        sends_ok=sum(send.outcome is Outcome.OK for send in [*sends, *unplaced]),
        sends_failed=sum(send.outcome is Outcome.FAILED for send in sends),
        sends_unknown=sum(send.outcome is Outcome.UNKNOWN for send in sends),
        snapshots=len(snapshots),
        records_polled=sum(len(poll.records) for poll in told if isinstance(poll, Poll)),
        commits_ok=sum(commit.outcome is Outcome.OK for commit in commits),
        commits_refused=sum(commit.outcome is Outcome.FAILED for commit in commits),
        commits_unknown=sum(commit.outcome is Outcome.UNKNOWN for commit in commits),
        latest_offsets=sum(isinstance(operation, LatestOffset) for operation in told),
        partitions_given=sum(isinstance(operation, Positioned) for operation in operations),
    )
    log_checks.check_values(order, sends, polls, report)
    log_checks.check_losses(sends, polls, FINAL_READER, report)
    log_checks.check_unplaced(unplaced, report)
    log_checks.check_polls(order, operations, report)
    log_checks.check_snapshots(sends, snapshots, report)
    log_checks.check_sends(sends, report)
    log_checks.check_real_time(sends, polls, report)
    log_checks.check_watermarks((mark for mark in operations if isinstance(mark, Watermark)), report)
    log_checks.check_latest((each for each in operations if isinstance(each, LatestOffset)), sends, polls, report)
    log_checks.check_silences(told, members, report, silence_ns_max)
    reads = (read for read in operations if isinstance(read, Committed))
    group_checks.check_commits(commits, reads, report)
    group_checks.check_stale_commits([operation for operation in operations if _is_of(operation, members)], report)
    group_checks.check_resets(operations, order, members, report)
    group_checks.check_owners(operations, members, report)
    if members:
        group_checks.check_delivery(sends, polls, members, report)
    return report


def settled_commits(history: Iterable[Operation]) -> list[Operation]:
    """A member records a commit when it starts and again when it is settled: the last record counts."""
    told = list(history)
    last = {(each.process, each.invoked_ns, each.partition): each for each in told if isinstance(each, Commit)}
    return [
        each
        for each in told
        if not isinstance(each, Commit) or last[each.process, each.invoked_ns, each.partition] is each
    ]


def _is_of(operation: Operation, members: Collection[str]) -> bool:
    return operation.process in members
