"""Checks of sends and reads: offsets, values, order.  Each is linear in the history's size, sorting aside.

The version order of a partition (the value at each offset) is assembled from all acknowledgements and
reads of clients; every guarantee is then a statement about it.  After Jepsen's workload for Kafka.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from tests.history.operations import (
    Ended,
    LatestOffset,
    Operation,
    Outcome,
    Poll,
    Positioned,
    Send,
    Servable,
    Served,
    Snapshot,
    Watermark,
)
from tests.history.report import Anomaly, Report

# An expired session, an election, and the time until clients find the new leader.
SILENCE_NS_MAX: Final = 10_000_000_000

# partition -> offset -> the values that clients had acknowledged or read there, in the order of discovery
VersionOrder: TypeAlias = Mapping[int, Mapping[int, Mapping[str, None]]]


def placed(sends: Iterable[Send], polls: Iterable[Poll]) -> tuple[list[Send], list[Send]]:
    """The sends with their offsets, and the acknowledged ones that have none.

    librdkafka reports no offset when a later acknowledgement covers the write: then it is at the
    first offset where a client read it.
    """
    offset_of: dict[tuple[int, str], int] = {}
    for poll in polls:
        for offset, value in poll.records:
            offset_of.setdefault((poll.partition, value), offset)
    found: list[Send] = []
    unplaced: list[Send] = []
    for send in sends:
        if send.outcome is not Outcome.OK or send.offset >= 0:
            found.append(send)
        elif (send.partition, send.value) in offset_of:
            found.append(send._replace(offset=offset_of[send.partition, send.value]))
        else:
            unplaced.append(send)
    return found, unplaced


def version_order(sends: Iterable[Send], polls: Iterable[Poll]) -> VersionOrder:
    order: dict[int, dict[int, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for send in sends:
        if send.outcome is Outcome.OK:
            order[send.partition][send.offset][send.value] = None
    for poll in polls:
        for offset, value in poll.records:
            order[poll.partition][offset][value] = None
    return order


def check_values(order: VersionOrder, sends: Sequence[Send], polls: Sequence[Poll], report: Report) -> None:
    """Inconsistent offsets, duplicates, reads of failed writes, phantoms."""
    sent = {(send.partition, send.value): send for send in sends}
    for partition, offsets in order.items():
        offsets_of: dict[str, list[int]] = defaultdict(list)
        for offset, values in offsets.items():
            if len(values) > 1:
                report.add(Anomaly.INCONSISTENT_OFFSET, f"partition {partition} offset {offset}: {list(values)[:3]}")
            for value in values:
                offsets_of[value].append(offset)
        for value, places in offsets_of.items():
            if len(places) > 1:
                report.add(Anomaly.DUPLICATE, f"partition {partition} value {value} at {sorted(places)[:3]}")
    read = {(poll.partition, value) for poll in polls for _, value in poll.records}
    for partition, value in sorted(read):
        send = sent.get((partition, value))
        if send is None:
            report.add(Anomaly.PHANTOM, f"partition {partition} value {value}")
        elif send.outcome is Outcome.FAILED:
            report.add(Anomaly.FAILED_WRITE_READ, f"partition {partition} value {value}")


def check_losses(sends: Sequence[Send], polls: Sequence[Poll], final_reader: str, report: Report) -> None:
    """Acknowledged writes that no client read although one read beyond, or that the final reading lacks."""
    read: dict[int, set[str]] = defaultdict(set)
    read_finally: dict[int, set[str]] = defaultdict(set)
    highest_read: dict[int, int] = defaultdict(lambda: -1)
    for poll in polls:
        for offset, value in poll.records:
            read[poll.partition].add(value)
            highest_read[poll.partition] = max(highest_read[poll.partition], offset)
            if poll.process == final_reader:
                read_finally[poll.partition].add(value)
    for send in sends:
        if send.outcome is not Outcome.OK:
            continue
        where = f"partition {send.partition} offset {send.offset} value {send.value}"
        if send.value not in read[send.partition] and send.offset < highest_read[send.partition]:
            report.add(Anomaly.LOST_WRITE, where)
        if send.value not in read_finally[send.partition]:
            report.add(Anomaly.UNSEEN, where)


def check_unplaced(unplaced: Iterable[Send], report: Report) -> None:
    """Acknowledged writes with an unknown offset, because no client has read them."""
    for send in unplaced:
        report.add(Anomaly.UNSEEN, f"partition {send.partition} value {send.value}, acknowledged without an offset")


def check_polls(order: VersionOrder, operations: Iterable[Operation], report: Report) -> None:
    """A consumer sees rising offsets without a gap, within a poll and between polls; a new position permits a jump."""
    known = {partition: sorted(offsets) for partition, offsets in order.items()}
    last_offset: dict[tuple[str, int], int] = {}
    for operation in sorted(
        (operation for operation in operations if isinstance(operation, Poll | Positioned)), key=_when_seen
    ):
        reader = operation.process, operation.partition
        if isinstance(operation, Positioned):
            last_offset.pop(reader, None)
            continue
        for offset, _ in operation.records:
            before = last_offset.get(reader)
            last_offset[reader] = offset
            if before is None:
                continue
            where = f"{operation.process} partition {operation.partition}: {offset} after {before}"
            if offset <= before:
                report.add(Anomaly.POLL_WENT_BACK, where)
                continue
            offsets = known[operation.partition]
            if bisect_left(offsets, offset) - bisect_right(offsets, before) > 0:
                report.add(Anomaly.POLL_SKIP, where)


def check_snapshots(sends: Iterable[Send], snapshots: Iterable[Snapshot], report: Report) -> None:
    """A reader of a whole partition gets all records that were acknowledged before."""
    acknowledged: dict[int, list[Send]] = defaultdict(list)
    for send in sends:
        if send.outcome is Outcome.OK:
            acknowledged[send.partition].append(send)
    for snapshot in snapshots:
        read = {value for _, value in snapshot.records}
        for send in acknowledged[snapshot.partition]:
            if send.completed_ns < snapshot.invoked_ns and send.value not in read:
                where = f"{snapshot.process} partition {snapshot.partition} offset {send.offset} value {send.value}"
                report.add(Anomaly.STALE_READ, where)


def check_sends(sends: Iterable[Send], report: Report) -> None:
    """The records of one producer are stored in the order in which it sent them."""
    last: dict[tuple[str, int], Send] = {}
    for send in sorted((send for send in sends if send.outcome is Outcome.OK), key=lambda send: send.invoked_ns):
        before = last.get((send.process, send.partition))
        last[send.process, send.partition] = send
        if before is not None and send.offset <= before.offset:
            where = f"{send.process} partition {send.partition}: {send.value} at {send.offset}"
            report.add(Anomaly.SENDS_OUT_OF_ORDER, f"{where}, sent after {before.value} at {before.offset}")


def check_real_time(sends: Iterable[Send], polls: Iterable[Poll], report: Report) -> None:
    """A write that started after a client knew an offset gets a higher one."""
    # (time, 0 = known / 1 = began, partition, offset, what): an offset known at the same instant counts as unknown.
    events: list[tuple[int, int, int, int, str]] = []
    for send in sends:
        if send.outcome is Outcome.OK:
            events.append((send.completed_ns, 1, send.partition, send.offset, ""))
            events.append((send.invoked_ns, 0, send.partition, send.offset, send.value))
    for poll in polls:
        if poll.records:
            highest = max(offset for offset, _ in poll.records)
            events.append((poll.completed_ns, 1, poll.partition, highest, ""))
    known: dict[int, int] = defaultdict(lambda: -1)
    for _, is_known, partition, offset, value in sorted(events):
        if is_known:
            known[partition] = max(known[partition], offset)
        elif offset <= known[partition]:
            where = f"partition {partition} value {value} at {offset}"
            report.add(Anomaly.REAL_TIME_ORDER, f"{where}, when {known[partition]} was known")


def check_watermarks(watermarks: Iterable[Watermark], report: Report) -> None:
    """A high watermark in a response to a client is not below the one in its previous response.

    Clients record the high watermark of the last response, so only those of one process can be compared.  Three
    cases that docs/replication.md (2a) allows are reported all the same, since a client does not see them: a new leader
    with fewer than `min.insync.replicas` in sync answers a lower one from 3 s after the start of its epoch on, any new
    leader from 6 s on, if a replica in sync has not fetched in the epoch until then, and a follower (KIP-392) answers
    what it knows to a consumer that comes from the leader.
    """
    highest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    for mark in sorted(watermarks, key=lambda mark: mark.completed_ns):
        known = highest[mark.process, mark.partition]
        if mark.high_watermark < known:
            where = f"{mark.process} partition {mark.partition}"
            report.add(Anomaly.WATERMARK_WENT_BACK, f"{where}: {mark.high_watermark} after {known}")
        highest[mark.process, mark.partition] = max(known, mark.high_watermark)


def check_latest(answers: Iterable[LatestOffset], sends: Iterable[Send], polls: Iterable[Poll], report: Report) -> None:
    """Once a latest offset was answered, a record read or a write acknowledged, no broker answers a lower latest
    offset to a later request of any client."""
    # (when it was known, the least latest offset from then on)
    known: dict[int, list[tuple[int, int]]] = defaultdict(list)
    asked: dict[int, list[LatestOffset]] = defaultdict(list)
    for answer in answers:
        known[answer.partition].append((answer.completed_ns, answer.offset))
        asked[answer.partition].append(answer)
    for send in sends:
        if send.outcome is Outcome.OK:
            known[send.partition].append((send.completed_ns, send.offset + 1))
    for poll in polls:
        if poll.records:
            known[poll.partition].append((poll.completed_ns, max(offset for offset, _ in poll.records) + 1))
    for partition, of_partition in asked.items():
        facts = iter(sorted(known[partition]))
        fact = next(facts, None)
        least = 0
        for answer in sorted(of_partition, key=lambda answer: answer.invoked_ns):
            while fact is not None and fact[0] < answer.invoked_ns:
                least = max(least, fact[1])
                fact = next(facts, None)
            if answer.offset < least:
                where = f"{answer.process} partition {partition}"
                report.add(Anomaly.LATEST_WENT_BACK, f"{where}: {answer.offset} after {least}")


def check_silences(
    operations: Sequence[Operation], members: Collection[str], report: Report, silence_ns_max: int = SILENCE_NS_MAX
) -> None:
    """While a replica can serve them, clients make progress every `silence_ns_max`, in each partition, from their first
    progress to their end.

    A group as a whole is judged, in each partition, since its partitions move between members; a process that is a
    member of another group, in all its partitions together.
    """
    windows: dict[Served, list[Servable]] = defaultdict(list)
    progress: dict[tuple[Served, str], list[int]] = defaultdict(list)
    ended_ns: dict[str, int] = {}
    life_ns: dict[tuple[Served, str], int] = {}
    positioned = {operation.process for operation in operations if isinstance(operation, Positioned)}
    for operation in operations:
        if isinstance(operation, Servable):
            windows[operation.whom].append(operation)
        elif isinstance(operation, Ended):
            ended_ns[operation.process] = operation.at_ns
    for operation in operations:
        if (isinstance(operation, Send) and operation.outcome is Outcome.OK) or (
            isinstance(operation, Poll) and operation.records
        ):
            if operation.process in members:
                who = Served.GROUP, f"the group, partition {operation.partition}"
            elif operation.process in positioned:
                who = Served.CLIENTS, operation.process
            else:
                who = Served.CLIENTS, f"{operation.process} partition {operation.partition}"
            progress[who].append(operation.completed_ns)
            if who[0] is Served.CLIENTS and operation.process in ended_ns:
                life_ns[who] = ended_ns[operation.process]
    for whom, of_whom in windows.items():
        report.figures[f"servable_s_{whom.name.lower()}"] = sum(w.ended_ns - w.began_ns for w in of_whom) // 10**9
        longest_ns = 0
        for who in (each for each in progress if each[0] is whom):
            times_ns = sorted(progress[who])
            for window in of_whom:
                silent_ns = _longest_silence_ns(times_ns, window, life_ns.get(who, window.ended_ns))
                longest_ns = max(longest_ns, silent_ns)
                if silent_ns > silence_ns_max:
                    of_s = (window.ended_ns - window.began_ns) / 1e9
                    report.add(Anomaly.SILENT, f"{who[1]}: {silent_ns / 1e9:.1f} s of {of_s:.1f} s")
        report.figures[f"longest_silence_ms_{whom.name.lower()}"] = longest_ns // 10**6


def _longest_silence_ns(times_ns: Sequence[int], window: Servable, end_ns: int) -> int:
    """Of one client in one window; one that started within the window is silent from its first progress on."""
    began_ns, ended_ns = max(window.began_ns, times_ns[0]), min(window.ended_ns, end_ns)
    inside = times_ns[bisect_right(times_ns, began_ns) : bisect_left(times_ns, ended_ns)]
    return max(later - earlier for earlier, later in pairwise([began_ns, *inside, max(began_ns, ended_ns)]))


def _when_seen(operation: Poll | Positioned) -> tuple[int, int]:
    if isinstance(operation, Positioned):
        return operation.at_ns, 0
    return operation.completed_ns, 1
