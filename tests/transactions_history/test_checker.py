"""The checker finds each planted anomaly, and finds nothing in a correct history."""

from __future__ import annotations

from functools import cache

import pytest

from tests.history.operations import (
    Committed,
    CommittedRead,
    LastStableOffset,
    Operation,
    Outcome,
    Transaction,
    from_line,
    to_line,
)
from tests.property.property_settings import exhaustive, is_tried
from tests.transactions_history.checker import FINAL_READER, check
from tests.transactions_history.random_history import CorrectWorld, plant
from tests.transactions_history.report import Anomaly

SEEDS = range(40)


@cache
def history_of(seed: int) -> list[Operation]:
    """A correct history; each planted anomaly spoils a copy of it."""
    return CorrectWorld(seed).run()


def transaction(
    at_ns: int,
    name: str,
    consumed: tuple[int, int],
    state: str,
    *offsets: int,
    outcome: Outcome = Outcome.OK,
    process: str = "w",
    others: tuple[tuple[int, str, int], ...] = (),
) -> Transaction:
    """It consumes inputs of partition 0, and writes to the results' partition 0 at these offsets, and to others."""
    results = tuple((0, f"{name}#{place}", offset) for place, offset in enumerate(offsets))
    inputs, states = ((0, *consumed),), ((0, state),)
    return Transaction(process, at_ns, at_ns + 5, outcome, name, inputs, states, (*results, *others))


def read(at_ns: int, *records: tuple[int, str], process: str = FINAL_READER, partition: int = 0) -> CommittedRead:
    return CommittedRead(process, at_ns, at_ns + 1, partition, records)


def stable(at_ns: int, offset: int, process: str = "x", high_watermark: int = -1) -> LastStableOffset:
    return LastStableOffset(process, at_ns, at_ns + 1, 0, offset, high_watermark)


def committed(at_ns: int, offset: int, process: str = "w") -> Committed:
    return Committed(process, at_ns, at_ns + 1, 0, offset)


# Two committed transactions, each with two results; their markers are at 2 and 5.
A = transaction(10, "a", (0, 3), "", 0, 1)
B = transaction(20, "b", (3, 7), "a#0", 3, 4)
ALL = read(90, (0, "a#0"), (1, "a#1"), (3, "b#0"), (4, "b#1"))
END: list[Operation] = [committed(92, 7, FINAL_READER), stable(94, 6, FINAL_READER, 6)]
CORRECT: list[Operation] = [A, B, ALL, *END]
ABORTED = transaction(30, "c", (7, 9), "b#0", 6, 7, outcome=Outcome.FAILED)
UNSURE = transaction(30, "c", (7, 9), "b#0", 6, 7, outcome=Outcome.UNKNOWN)

BY_HAND: dict[Anomaly, list[Operation]] = {
    Anomaly.TORN: [A, B, read(90, (0, "a#0"), (1, "a#1"), (3, "b#0")), *END],
    Anomaly.ABORTED_READ: [*CORRECT, ABORTED, read(50, (6, "c#0"), process="x")],
    Anomaly.LOST_COMMIT: [A, B, read(90, (0, "a#0"), (1, "a#1")), *END],
    Anomaly.VANISHED: [A, B, read(90, (0, "a#0"), (3, "b#0"), (4, "b#1")), read(50, (1, "a#1"), process="x")],
    Anomaly.INCONSISTENT_OFFSET: [*CORRECT, read(50, (0, "b#0"), process="x")],
    Anomaly.DUPLICATE: [A, B, ALL, read(91, (6, "a#0")), *END],
    Anomaly.PHANTOM: [*CORRECT, read(96, (7, "none#0"))],
    Anomaly.INTERMEDIATE: [stable(1, 1), *CORRECT],
    Anomaly.READ_SKIPPED: [*CORRECT, read(50, (0, "a#0"), (3, "b#0"), process="x")],
    Anomaly.READ_WENT_BACK: [*CORRECT, read(50, (0, "a#0"), (0, "a#0"), process="x")],
    Anomaly.OUT_OF_ORDER: [A, B, read(90, (0, "a#1"), (1, "a#0"), (3, "b#0"), (4, "b#1")), *END],
    Anomaly.REAL_TIME_ORDER: [A._replace(process="y", invoked_ns=40, completed_ns=45), B, ALL, *END],
    Anomaly.INPUT_TWICE: [A, B._replace(inputs=((0, 2, 7),)), ALL, *END],
    Anomaly.INPUT_LOST: [A, B._replace(inputs=((0, 4, 7),)), ALL, *END],
    Anomaly.OFFSET_OF_NO_COMMIT: [*CORRECT, ABORTED, committed(50, 9)],
    Anomaly.OFFSET_LOST: [*CORRECT, committed(50, 3)],
    Anomaly.WRONG_STATE: [A, B._replace(states=((0, ""),)), ALL, *END],
    Anomaly.STABLE_WENT_BACK: [*CORRECT, stable(30, 3), stable(40, 2)],
    Anomaly.STUCK: [A, B, ALL, stable(94, 6, FINAL_READER, 8)],
}


@pytest.mark.parametrize("anomaly", Anomaly)
def test_checker_finds_an_anomaly_in_a_small_history(anomaly: Anomaly) -> None:
    assert anomaly in check(BY_HAND[anomaly]).found


def test_correct_small_history_has_no_anomaly() -> None:
    report = check(CORRECT)
    assert report.is_clean, str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_checker_finds_nothing_in_a_random_history_of_correct_transactions(seed: int) -> None:
    report = check(history_of(seed))
    assert report.is_clean, str(report)


@exhaustive
@pytest.mark.parametrize("anomaly", Anomaly)
def test_checker_finds_an_anomaly_planted_in_random_histories(anomaly: Anomaly) -> None:
    for seed in filter(is_tried, SEEDS):
        assert anomaly in check(plant(anomaly, history_of(seed), seed)).found, f"seed {seed}"


@pytest.mark.parametrize(
    "excused",
    [
        pytest.param([*CORRECT, UNSURE], id="an unknown transaction without a trace"),
        pytest.param(
            [A, B, UNSURE, ALL, read(91, (6, "c#0"), (7, "c#1")), committed(92, 9, FINAL_READER)],
            id="an unknown transaction that committed",
        ),
        pytest.param([*CORRECT, ABORTED], id="an aborted transaction that no reader got"),
        pytest.param([*CORRECT, committed(22, 3)], id="an offset that was read beside the next commit"),
        pytest.param([*CORRECT, committed(23, 7)], id="an offset that was read before its commit was answered"),
        pytest.param([*CORRECT, stable(22, 3), stable(22, 2)], id="stable offsets that were requested together"),
        pytest.param([*CORRECT, stable(30, 5)], id="a stable offset between a transaction and its marker"),
        pytest.param(
            [A, B, ALL, stable(94, 6, FINAL_READER, 8), stable(98, 8, FINAL_READER, 8)],
            id="a stable offset that had not moved yet",
        ),
        pytest.param([A._replace(process="y", completed_ns=25), B, ALL, *END], id="transactions at the same time"),
        pytest.param(
            [A, B._replace(results=((0, "b#0", 3), (0, "b#1", -1))), ALL, *END],
            id="a result whose acknowledgement gave no offset",
        ),
        pytest.param([*CORRECT, read(50, (0, "a#0"), process="x")], id="a reader that ended early"),
    ],
)
def test_checker_excuses(excused: list[Operation]) -> None:
    report = check(excused)
    assert report.is_clean, str(report)


def test_unknown_transaction_is_torn_where_only_a_part_of_it_is_there() -> None:
    assert check([A, B, UNSURE, ALL, read(91, (6, "c#0"))]).found == {Anomaly.TORN}


def test_unknown_transaction_without_results_has_no_offsets_either() -> None:
    assert check([A, B, UNSURE, ALL, committed(92, 9, FINAL_READER)]).found == {
        Anomaly.INPUT_LOST,
        Anomaly.OFFSET_OF_NO_COMMIT,
    }


def test_unknown_transaction_with_results_has_its_offsets() -> None:
    shown = read(91, (6, "c#0"), (7, "c#1"))
    assert check([A, B, UNSURE, ALL, shown, committed(92, 7, FINAL_READER)]).found == {Anomaly.OFFSET_LOST}


def test_transaction_counts_by_its_last_record() -> None:
    started = B._replace(completed_ns=20, outcome=Outcome.FAILED, results=((0, "b#0", -1), (0, "b#1", -1)))
    requested = started._replace(completed_ns=22, outcome=Outcome.UNKNOWN)
    assert check([A, started, requested, B, ALL, *END]).is_clean
    assert check([A, started, requested, ALL, *END]).is_clean, "its client died while it committed"
    assert Anomaly.ABORTED_READ in check([A, started, ALL, *END]).found, "no commit was requested"


def test_results_in_lists_of_others_are_part_of_the_transaction() -> None:
    both = B._replace(results=(*B.results, (1, "b#2", 0)))
    assert check([A, both, ALL, read(91, (0, "b#2"), partition=1), *END]).is_clean
    assert check([A, both, ALL, *END]).found == {Anomaly.TORN}


def test_report_has_each_anomaly_with_its_count() -> None:
    text = str(check(BY_HAND[Anomaly.DUPLICATE]))
    for anomaly in Anomaly:
        assert anomaly.name.lower() in text
    assert "     1  duplicate" in text


def test_operations_are_read_back_from_their_lines() -> None:
    for operation in CorrectWorld(1).run():
        assert from_line(to_line(operation)) == operation
