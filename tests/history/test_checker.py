"""The checker finds each planted anomaly, and finds nothing in a clean history."""

from __future__ import annotations

from functools import cache

import pytest

from tests.history.checker import FINAL_READER, check
from tests.history.log_checks import SILENCE_NS_MAX
from tests.history.operations import (
    Commit,
    Committed,
    Ended,
    LatestOffset,
    Operation,
    Outcome,
    Poll,
    Positioned,
    Revoked,
    Send,
    Servable,
    Served,
    Snapshot,
    Watermark,
    from_line,
    to_line,
)
from tests.history.random_history import LATE_MEMBER, MEMBERS, CorrectWorld, plant
from tests.history.report import Anomaly
from tests.property.property_settings import exhaustive, is_tried

SEEDS = range(40)


@cache
def history_of(seed: int) -> list[Operation]:
    """A correct history; each planted anomaly spoils a copy of it."""
    return CorrectWorld(seed).run()


def send(at_ns: int, value: str, offset: int, outcome: Outcome = Outcome.OK, process: str = "p") -> Send:
    return Send(process, at_ns, at_ns + 1, outcome, 0, value, offset)


def poll(at_ns: int, *records: tuple[int, str], process: str = FINAL_READER) -> Poll:
    return Poll(process, at_ns, at_ns + 1, 0, records)


def servable(began_ns: int, ended_ns: int, whom: Served = Served.CLIENTS) -> Servable:
    return Servable("run", began_ns, ended_ns, whom)


def given_again(*records: tuple[int, str]) -> list[Operation]:
    """A member reads all and commits `b`'s end; then another member has the partition and reads these."""
    first: list[Operation] = [
        Positioned("m0", 40, 0, 1),
        poll(41, *ALL.records, process="m0"),
        Commit("m0", 43, 44, Outcome.OK, 0, 2),
    ]
    return [A, B, C, ALL, *first, Revoked("m0", 45, 0), Positioned("m1", 46, 0, 2), poll(47, *records, process="m1")]


A, B, C = send(10, "a", 0), send(20, "b", 1), send(30, "c", 2)
ALL = poll(90, (0, "a"), (1, "b"), (2, "c"))
LATE = poll(2 * SILENCE_NS_MAX, (0, "a"), (1, "b"), (2, "c"))

BY_HAND: dict[Anomaly, list[Operation]] = {
    Anomaly.INCONSISTENT_OFFSET: [A, B, C, ALL, poll(95, (1, "a"), process="x")],
    Anomaly.FAILED_WRITE_READ: [A, send(20, "b", -1, Outcome.FAILED), C, ALL],
    Anomaly.DUPLICATE: [A, B, C, poll(90, (0, "a"), (1, "b"), (2, "c"), (3, "a"))],
    Anomaly.LOST_WRITE: [A, B, C, poll(90, (0, "a"), (2, "c"))],
    Anomaly.UNSEEN: [A, B, C, poll(90, (0, "a"), (1, "b"))],
    Anomaly.PHANTOM: [A, B, ALL],
    Anomaly.POLL_SKIP: [A, B, C, poll(90, (0, "a")), poll(92, (2, "c")), poll(95, (1, "b"), process="x")],
    Anomaly.POLL_WENT_BACK: [A, B, C, ALL, poll(95, (2, "c"))],
    Anomaly.STALE_READ: [A, B, C, ALL, Snapshot("x", 40, 41, 0, ((0, "a"), (1, "b")))],
    Anomaly.SENDS_OUT_OF_ORDER: [send(10, "b", 1), send(11, "a", 0), C, ALL],
    Anomaly.REAL_TIME_ORDER: [B, send(25, "a", 0, process="q"), C, ALL],
    Anomaly.WATERMARK_WENT_BACK: [A, B, C, ALL, Watermark("x", 40, 41, 0, 3), Watermark("x", 42, 43, 0, 2)],
    Anomaly.LATEST_WENT_BACK: [A, B, C, ALL, LatestOffset("x", 40, 41, 0, 3), LatestOffset("y", 42, 43, 0, 2)],
    Anomaly.SILENT: [A, B, servable(22, 23 + SILENCE_NS_MAX), send(SILENCE_NS_MAX + 40, "c", 2), LATE],
    Anomaly.DOUBLE_OWNER: [Positioned("m0", 1, 0, 7), Positioned("m1", 2, 0, 7)],
    Anomaly.STALE_COMMIT: [
        Positioned("m0", 1, 0, 1),
        Positioned("m1", 5, 0, 2),
        Commit("m0", 6, 7, Outcome.OK, 0, 3),
    ],
    Anomaly.COMMIT_LOST: [Commit("m0", 1, 2, Outcome.OK, 0, 3), Committed("m1", 3, 4, 0, -1)],
    Anomaly.COMMIT_WENT_BACK: [Commit("m0", 1, 2, Outcome.OK, 0, 3), Commit("m0", 3, 4, Outcome.OK, 0, 2)],
    Anomaly.RESET: given_again((1, "b"), (2, "c")),
    Anomaly.NOT_DELIVERED: [A, B, C, ALL, poll(50, (0, "a"), (1, "b"), process="m0")],
}


@pytest.mark.parametrize("anomaly", Anomaly)
def test_checker_finds_an_anomaly_in_a_small_history(anomaly: Anomaly) -> None:
    assert anomaly in check(BY_HAND[anomaly], members=("m0", "m1")).found


def test_checker_finds_a_stale_commit_where_libraries_give_no_generations() -> None:
    given = [Positioned("m0", 1, 0, -1), Positioned("m1", 3, 0, -1)]
    by_successor, by_former = Commit("m1", 4, 5, Outcome.OK, 0, 3), Commit("m0", 6, 7, Outcome.OK, 0, 3)
    assert Anomaly.STALE_COMMIT in check([*given, by_successor, by_former], members=("m0", "m1")).found
    assert check([*given, by_former], members=("m0", "m1")).is_clean, "nothing says who was given it later"


def test_silence_in_one_partition_is_found_in_a_reader_but_not_in_a_member_with_others() -> None:
    window = servable(22, 23 + SILENCE_NS_MAX)
    elsewhere = [Poll("x", at_ns, at_ns, 1, ((at_ns, "z"),)) for at_ns in (21, SILENCE_NS_MAX // 2, 2 * SILENCE_NS_MAX)]
    history: list[Operation] = [
        window,
        *elsewhere,
        poll(20, (0, "a"), process="x"),
        poll(2 * SILENCE_NS_MAX, (1, "b"), process="x"),
    ]
    assert Anomaly.SILENT in check(history).found
    assert Anomaly.SILENT not in check([*history, Positioned("x", 1, 0, 1)]).found


def test_silence_lasts_until_the_window_or_the_client_ends_without_later_progress() -> None:
    window = servable(22, 23 + SILENCE_NS_MAX)
    assert check([A, B, window]).counts[Anomaly.SILENT] == 1
    assert Anomaly.SILENT not in check([A, B, window, Ended("p", 22 + SILENCE_NS_MAX)]).found
    assert Anomaly.SILENT not in check([window, send(2 * SILENCE_NS_MAX, "a", 0)]).found, "it had not begun"


def test_silence_counts_from_the_time_when_a_replica_could_serve() -> None:
    began_ns = 5 * SILENCE_NS_MAX
    assert Anomaly.SILENT not in check([A, servable(began_ns, began_ns + SILENCE_NS_MAX)]).found
    assert Anomaly.SILENT in check([A, servable(began_ns, began_ns + SILENCE_NS_MAX + 1)]).found


def test_silence_of_a_group_is_found_in_a_partition_that_no_member_reads() -> None:
    of_group = servable(22, 23 + SILENCE_NS_MAX, Served.GROUP)
    by_one = poll(20, (0, "a"), process="m0")
    by_other = poll(SILENCE_NS_MAX // 2, (1, "b"), process="m1")
    assert Anomaly.SILENT in check([of_group, by_one], ("m0", "m1")).found
    assert Anomaly.SILENT not in check([of_group, by_one, by_other], ("m0", "m1")).found
    assert Anomaly.SILENT not in check([of_group._replace(whom=Served.CLIENTS), by_one], ("m0", "m1")).found


def test_member_may_start_at_each_offset_that_may_be_committed() -> None:
    members = ("m0", "m1")
    assert check(given_again((2, "c")), members).is_clean
    skips = given_again((3, "d"))
    found = check([*skips, send(31, "d", 3), poll(92, (2, "c"), (3, "d"), process="x")], members).found
    assert found >= {Anomaly.RESET}
    unsure = Commit("m0", 43, 44, Outcome.UNKNOWN, 0, 3)
    assert Anomaly.RESET not in check([*skips, unsure, send(31, "d", 3)], members).found


def test_started_commit_may_be_stored_although_it_was_refused_at_last() -> None:
    begun = Commit("m0", 43, 43, Outcome.UNKNOWN, 0, 3)
    skips = [*given_again((3, "d")), send(31, "d", 3), begun]
    assert Anomaly.RESET not in check(skips, ("m0", "m1")).found
    refused = begun._replace(completed_ns=44, outcome=Outcome.FAILED)
    assert Anomaly.RESET not in check([*skips, refused], ("m0", "m1")).found


def test_member_without_a_committed_offset_starts_at_the_first_record() -> None:
    for first, is_reset in ((0, False), (1, True)):
        given: list[Operation] = [
            A,
            B,
            C,
            ALL,
            Positioned("m0", 40, 0, 1),
            poll(41, *ALL.records[first:], process="m0"),
        ]
        assert (Anomaly.RESET in check(given, ("m0",)).found) is is_reset


def test_kept_partition_is_read_from_the_members_own_position() -> None:
    kept: list[Operation] = [
        Positioned("m0", 40, 0, 1),
        poll(41, (0, "a"), process="m0"),
        Positioned("m0", 43, 0, 2),
        poll(44, (1, "b"), (2, "c"), process="m0"),
    ]
    assert check([A, B, C, ALL, *kept], ("m0",)).is_clean


def test_latest_offset_covers_records_acknowledged_or_read_before_its_request() -> None:
    for offset, is_clean in ((3, True), (2, False)):
        acknowledged_before: list[Operation] = [A, B, C, ALL, LatestOffset("x", 32, 33, 0, offset)]
        assert check(acknowledged_before).is_clean is is_clean
    unknown = C._replace(outcome=Outcome.UNKNOWN, offset=-1)
    assert check([A, B, unknown, ALL, LatestOffset("x", 89, 92, 0, 2)]).is_clean
    assert check([A, B, unknown, ALL, LatestOffset("x", 92, 93, 0, 2)]).found == {Anomaly.LATEST_WENT_BACK}


def test_write_acknowledged_without_an_offset_has_the_offset_of_its_read() -> None:
    b = B._replace(offset=-1)
    assert check([A, b, C, ALL]).is_clean
    assert check([A, b, C, poll(90, (0, "a"), (2, "c"))]).found == {Anomaly.UNSEEN}
    assert check([A, b, C, poll(90, (0, "a"), (1, "b"), (2, "c"), (3, "b"))]).found == {Anomaly.DUPLICATE}


@pytest.mark.parametrize("seed", SEEDS)
def test_checker_finds_nothing_in_a_random_history_without_anomalies(seed: int) -> None:
    report = check(history_of(seed), MEMBERS)
    assert report.is_clean, str(report)


@exhaustive
@pytest.mark.parametrize("anomaly", Anomaly)
def test_checker_finds_an_anomaly_planted_in_random_histories(anomaly: Anomaly) -> None:
    for seed in filter(is_tried, SEEDS):
        spoiled = plant(anomaly, history_of(seed), seed)
        assert anomaly in check(spoiled, (*MEMBERS, LATE_MEMBER)).found, f"seed {seed}"


@pytest.mark.parametrize(
    "excused",
    [
        pytest.param([A, B, C, ALL, Positioned(FINAL_READER, 93, 0, -1), poll(95, (1, "b"))], id="a new position"),
        pytest.param([A, send(20, "b", -1, Outcome.UNKNOWN), C, ALL], id="an unknown write that was stored"),
        pytest.param([A, send(20, "b", -1, Outcome.UNKNOWN), C, poll(90, (0, "a"), (2, "c"))], id="and one not stored"),
        pytest.param([A, B, C, ALL, Snapshot("x", 30, 41, 0, ((0, "a"), (1, "b")))], id="a reading begun before"),
        pytest.param([send(10, "b", 1), send(10, "a", 0, process="q"), C, ALL], id="writes at the same time"),
        pytest.param(
            [A, B, C, ALL, LatestOffset("x", 29, 43, 0, 3), LatestOffset("y", 30, 44, 0, 2)],
            id="two latest offsets that were asked for at the same time",
        ),
        pytest.param(
            [A, B, servable(22, SILENCE_NS_MAX), send(SILENCE_NS_MAX + 40, "c", 2), LATE],
            id="a silence that no replica could have ended",
        ),
        pytest.param(
            [
                A,
                B,
                Ended("p", 25),
                send(20 + SILENCE_NS_MAX, "c", 2, process="q"),
                servable(22, 25 + SILENCE_NS_MAX),
                LATE,
            ],
            id="a producer that had ended",
        ),
        pytest.param(
            [
                Positioned("m0", 1, 0, 1),
                Revoked("m0", 2, 0),
                Commit("m0", 3, 4, Outcome.OK, 0, 3),
                Positioned("m1", 5, 0, 2),
            ],
            id="a commit before the next owner",
        ),
        pytest.param(
            [Positioned("m1", 1, 0, -1), Positioned("m0", 2, 0, -1), Commit("m1", 3, 4, Outcome.OK, 0, 3)],
            id="a commit after another member noticed late what it was given before",
        ),
        pytest.param([Commit("m0", 1, 9, Outcome.OK, 0, 3), Committed("m1", 3, 4, 0, -1)], id="a commit under way"),
        pytest.param([Commit("m0", 1, 2, Outcome.UNKNOWN, 0, 3), Committed("m1", 3, 4, 0, -1)], id="an unsure commit"),
    ],
)
def test_checker_excuses(excused: list[Operation]) -> None:
    # Without records nothing must be delivered, and only the group's rules apply.
    has_records = any(isinstance(operation, Send) for operation in excused)
    report = check(excused, members=() if has_records else ("m0", "m1"))
    assert report.is_clean, str(report)


def test_report_names_every_kind_of_anomaly_with_its_count() -> None:
    text = str(check(BY_HAND[Anomaly.DUPLICATE]))
    for anomaly in Anomaly:
        assert anomaly.name.lower() in text
    assert "     1  duplicate" in text


def test_operations_are_read_back_from_their_lines() -> None:
    for operation in CorrectWorld(1).run():
        assert from_line(to_line(operation)) == operation
