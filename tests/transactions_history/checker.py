"""The checker of transactional histories: from the operations of clients to the anomalies that must never happen.

The workload is Jepsen's list-append in the form that a log has.  Each partition of the results is a list.  A
transaction consumes inputs, has read the lists of the partitions that it consumes, appends to these and to others, and
commits the offsets of its inputs with its results.  One transaction at a time owns an input partition, so its list is a
chain: each transaction records the element that it had read last.

A transaction of unknown outcome (its client got an error, or died, after it had requested the commit) counts as
committed when the final reading shows any of its results, and as aborted otherwise.  A commit that was never requested
cannot have happened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.history.operations import Committed, CommittedRead, LastStableOffset, Operation, Outcome, Transaction
from tests.transactions_history.report import Anomaly, Report
from tests.transactions_history.worker import GAVE_UP

# The process that reads every partition of the results, and the committed offsets, after all faults have ended.
FINAL_READER: Final = "final-reader"

Answer = TypeVar("Answer", Committed, LastStableOffset)


@dataclass(frozen=True)
class World:
    """A history, indexed."""

    transactions: Sequence[Transaction]
    reads: Sequence[CommittedRead]
    # partition -> offset -> value, as the final reader got them
    final: Mapping[int, Mapping[int, str]]
    # value -> its transaction, partition and place among the transaction's results
    written: Mapping[str, tuple[Transaction, int, int]]
    # By answer or by the final reading.
    committed: Sequence[Transaction]


def check(history: Iterable[Operation]) -> Report:
    """All anomalies of a history that ends with the readings of `FINAL_READER`."""
    operations = list(history)
    world = _world(operations)
    stable = [each for each in operations if isinstance(each, LastStableOffset)]
    offsets = [each for each in operations if isinstance(each, Committed)]
    report = Report()
    report.figures.update(
        transactions_ok=sum(each.outcome is Outcome.OK for each in world.transactions),
        transactions_failed=sum(each.outcome is Outcome.FAILED for each in world.transactions),
        transactions_unknown=sum(each.outcome is Outcome.UNKNOWN for each in world.transactions),
        transactions_given_up=sum(each.error.startswith(GAVE_UP) for each in world.transactions),
        unknown_committed=sum(each.outcome is Outcome.UNKNOWN for each in world.committed),
        results=sum(len(values) for values in world.final.values()),
        results_read=sum(len(read.records) for read in world.reads),
        inputs=sum(end - first for each in world.committed for _, first, end in each.inputs),
        committed_offsets_read=len(offsets),
        stable_offsets_read=len(stable),
    )
    _check_outcomes(world, report)
    _check_values(world, report)
    _check_readers(world, report)
    _check_orders(world, report)
    _check_chains(world, report)
    _check_inputs(world, offsets, report)
    _check_committed_offsets(world, offsets, report)
    _check_stable_offsets(world, stable, report)
    return report


def settled(history: Iterable[Operation]) -> list[Transaction]:
    """The last record of each transaction, in the order of their starts."""
    last = {each.name: each for each in history if isinstance(each, Transaction)}
    return sorted(last.values(), key=lambda each: each.invoked_ns)


def _world(operations: Sequence[Operation]) -> World:
    transactions = settled(operations)
    reads = [each for each in operations if isinstance(each, CommittedRead)]
    final: dict[int, dict[int, str]] = defaultdict(dict)
    for read in reads:
        if read.process == FINAL_READER:
            final[read.partition].update(read.records)
    written = {
        value: (transaction, partition, place)
        for transaction in transactions
        for place, (partition, value, _) in enumerate(transaction.results)
    }
    shown = {value for values in final.values() for value in values.values()}
    committed = [
        each
        for each in transactions
        if each.outcome is Outcome.OK
        or (each.outcome is Outcome.UNKNOWN and any(value in shown for _, value, _ in each.results))
    ]
    return World(transactions, reads, final, written, committed)


def _check_outcomes(world: World, report: Report) -> None:
    """All or nothing; never what was not committed; and what was committed for ever."""
    shown = {(partition, value) for partition, values in world.final.items() for value in values.values()}
    read = {(each.partition, value) for each in world.reads for _, value in each.records}
    for each in world.transactions:
        results = [(partition, value) for partition, value, _ in each.results]
        missing = [result for result in results if result not in shown]
        if each.outcome is Outcome.FAILED:
            for partition, value in results:
                if (partition, value) in read:
                    report.add(Anomaly.ABORTED_READ, f"partition {partition} value {value}: {_described(each)}")
        elif len(missing) == len(results):
            if each.outcome is Outcome.OK:
                report.add(Anomaly.LOST_COMMIT, _described(each))
        elif missing:
            report.add(Anomaly.TORN, f"{_described(each)}: {len(missing)} of {len(results)} missing, {missing[:3]}")


def _check_values(world: World, report: Report) -> None:
    """A result is at one offset, which has one value, and was written there."""
    values_at: dict[tuple[int, int], set[str]] = defaultdict(set)
    offsets_of: dict[tuple[int, str], set[int]] = defaultdict(set)
    for read in world.reads:
        for offset, value in read.records:
            values_at[read.partition, offset].add(value)
            offsets_of[read.partition, value].add(offset)
            if read.process != FINAL_READER and world.final[read.partition].get(offset) is None:
                report.add(Anomaly.VANISHED, f"{read.process} partition {read.partition} offset {offset}: {value}")
    for each in world.committed:
        for partition, value, offset in each.results:
            if offset >= 0:
                values_at[partition, offset].add(value)
                offsets_of[partition, value].add(offset)
    for (partition, offset), values in values_at.items():
        if len(values) > 1:
            report.add(Anomaly.INCONSISTENT_OFFSET, f"partition {partition} offset {offset}: {sorted(values)[:3]}")
    for (partition, value), offsets in offsets_of.items():
        writer = world.written.get(value)
        if writer is None or writer[1] != partition:
            report.add(Anomaly.PHANTOM, f"partition {partition} value {value}")
        if len(offsets) > 1:
            report.add(Anomaly.DUPLICATE, f"partition {partition} value {value} at {sorted(offsets)[:3]}")


def _check_readers(world: World, report: Report) -> None:
    """Each reader gets every committed result from offset 0 on, in order."""
    streams: dict[tuple[str, int], list[int]] = defaultdict(list)
    for read in world.reads:
        streams[read.process, read.partition] += [offset for offset, _ in read.records]
    for (process, partition), offsets in streams.items():
        for place in range(1, len(offsets)):
            if offsets[place] <= offsets[place - 1]:
                where = f"{process} partition {partition}"
                report.add(Anomaly.READ_WENT_BACK, f"{where}: {offsets[place]} after {offsets[place - 1]}")
        end = max(offsets, default=-1)
        got = set(offsets)
        for offset in sorted(world.final[partition]):
            if offset < end and offset not in got:
                value = world.final[partition][offset]
                report.add(Anomaly.READ_SKIPPED, f"{process} partition {partition} offset {offset}: {value}")


def _check_orders(world: World, report: Report) -> None:
    """The order of a partition is that of each producer, and that of transactions one after the other."""
    for partition, values in world.final.items():
        last_of: dict[str, tuple[int, int, str]] = {}
        latest_start_ns, latest = -1, ""
        for _, value in sorted(values.items()):
            if value not in world.written:
                continue
            transaction, _, place = world.written[value]
            at = transaction.invoked_ns, place, value
            before = last_of.get(transaction.process)
            if before is not None and at < before:
                report.add(Anomaly.OUT_OF_ORDER, f"partition {partition}: {before[2]} before {value}")
            last_of[transaction.process] = at
            if transaction.outcome is Outcome.OK and latest_start_ns > transaction.completed_ns:
                report.add(Anomaly.REAL_TIME_ORDER, f"partition {partition}: {latest} before {value}")
            if transaction.invoked_ns > latest_start_ns:
                latest_start_ns, latest = transaction.invoked_ns, value


def _check_chains(world: World, report: Report) -> None:
    """What a transaction had read of the list of its input partition is what its predecessor appended there."""
    for partition, values in world.final.items():
        predecessor = ""
        for _, value in sorted(values.items()):
            if value not in world.written:
                continue
            transaction, _, place = world.written[value]
            if place >= len(transaction.inputs):
                continue
            for of_partition, known in transaction.states:
                if of_partition == partition and known != predecessor:
                    where = f"partition {partition}: {_described(transaction)}"
                    report.add(Anomaly.WRONG_STATE, f"{where} knew {known!r}, not {predecessor!r}")
            predecessor = value


def _check_inputs(world: World, offsets: Iterable[Committed], report: Report) -> None:
    """Committed transactions consume each input once, up to the committed offset."""
    ranges: dict[int, list[tuple[int, int, Transaction]]] = defaultdict(list)
    for each in world.committed:
        for partition, first, end in each.inputs:
            ranges[partition].append((first, end, each))
    at_last = {each.partition: max(each.offset, 0) for each in offsets if each.process == FINAL_READER}
    for partition in ranges.keys() | at_last.keys():
        consumed_to, by = 0, "nothing"
        for first, end, each in sorted(ranges[partition], key=lambda consumed: consumed[:2]):
            where = f"partition {partition}: {_described(each)} from {first}, {by} to {consumed_to}"
            if first < consumed_to:
                report.add(Anomaly.INPUT_TWICE, where)
            elif first > consumed_to:
                report.add(Anomaly.INPUT_LOST, where)
            if end > consumed_to:
                consumed_to, by = end, _described(each)
        if at_last.get(partition, consumed_to) > consumed_to:
            where = f"partition {partition}: {at_last[partition]} is committed, {by} to {consumed_to}"
            report.add(Anomaly.INPUT_LOST, where)


def _check_committed_offsets(world: World, offsets: Iterable[Committed], report: Report) -> None:
    """A committed offset is one that a committed transaction has left, and no later one had replaced it.

    A commit counts from its answer on, and one of unknown outcome for the final reading.
    """
    left_ns: dict[int, list[tuple[int, int]]] = defaultdict(list)
    possible: dict[int, set[int]] = defaultdict(lambda: {0})
    for each in world.committed:
        for partition, _, end in each.inputs:
            possible[partition].add(end)
            if each.outcome is Outcome.OK:
                left_ns[partition].append((each.completed_ns, end))
    reads_of: dict[int, list[Committed]] = defaultdict(list)
    for read in offsets:
        reads_of[read.partition].append(read)
    for partition, reads in reads_of.items():
        for read, least in _with_least(reads, left_ns[partition]):
            if read.process == FINAL_READER:
                least = max(possible[partition])
            where = f"{read.process} partition {partition}: {read.offset}"
            # Without a committed offset the first input is the next.
            offset = max(read.offset, 0)
            if offset not in possible[partition]:
                report.add(Anomaly.OFFSET_OF_NO_COMMIT, where)
            if offset < least:
                report.add(Anomaly.OFFSET_LOST, f"{where} after {least}")


def _check_stable_offsets(world: World, stable: Iterable[LastStableOffset], report: Report) -> None:
    """It never falls, is never within a transaction, and is the high watermark at the end."""
    of_partition: dict[int, list[LastStableOffset]] = defaultdict(list)
    for each in stable:
        of_partition[each.partition].append(each)
    spans = _spans(world)
    for partition, answers in of_partition.items():
        for answer, least in _with_least(answers, [(each.completed_ns, each.offset) for each in answers]):
            if answer.offset < least:
                where = f"{answer.process} partition {partition}"
                report.add(Anomaly.STABLE_WENT_BACK, f"{where}: {answer.offset} after {least}")
        answered = sorted({each.offset for each in answers})
        for transaction, first, last in spans[partition]:
            inside = answered[bisect_right(answered, first) : bisect_left(answered, last + 1)]
            if inside:
                where = f"partition {partition}: {inside[0]} in {_described(transaction)} at {first} to {last}"
                report.add(Anomaly.INTERMEDIATE, where)
        at_last = [each for each in answers if each.process == FINAL_READER]
        if at_last and at_last[-1].offset < at_last[-1].high_watermark:
            where = f"partition {partition}: {at_last[-1].offset} of {at_last[-1].high_watermark}"
            report.add(Anomaly.STUCK, where)


def _with_least(answers: Iterable[Answer], facts: Iterable[tuple[int, int]]) -> Iterator[tuple[Answer, int]]:
    """Each answer with the highest offset that was known, (when, offset), before its request; 0 where none was."""
    known = iter(sorted(facts))
    fact = next(known, None)
    least = 0
    for answer in sorted(answers, key=lambda each: each.invoked_ns):
        while fact is not None and fact[0] < answer.invoked_ns:
            least = max(least, fact[1])
            fact = next(known, None)
        yield answer, least


def _spans(world: World) -> Mapping[int, Sequence[tuple[Transaction, int, int]]]:
    """By partition, the transactions with the first and the last offset that is known of their results."""
    offset_of = {
        (partition, value): offset for partition, values in world.final.items() for offset, value in values.items()
    }
    spans: dict[int, list[tuple[Transaction, int, int]]] = defaultdict(list)
    for each in world.transactions:
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, value, offset in each.results:
            found = offset if offset >= 0 else offset_of.get((partition, value), -1)
            if found >= 0:
                offsets[partition].append(found)
        for partition, of_partition in offsets.items():
            spans[partition].append((each, min(of_partition), max(of_partition)))
    return spans


def _described(transaction: Transaction) -> str:
    error = f", {transaction.error}" if transaction.error else ""
    return f"{transaction.name} ({transaction.outcome}{error})"
