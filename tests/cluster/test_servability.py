"""When clients of a chaos run are judged: each fault declares whether a replica can still serve them."""

from __future__ import annotations

import pytest

from tests.cluster import servability as servability_module
from tests.cluster.fault_table import ALL_FAULTS, HURTS_THE_GROUP, LEAVES_A_REPLICA, LEAVES_NONE
from tests.cluster.servability import ALL, Servability
from tests.history.operations import Served

SECOND_NS = 10**9


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(servability_module, "now_ns", lambda: clock.now_ns)
    return clock


@pytest.fixture
def windows() -> list[tuple[int, int, Served]]:
    return []


@pytest.fixture
def servability(windows: list[tuple[int, int, Served]]) -> Servability:
    return Servability(lambda began_ns, ended_ns, whom: windows.append((began_ns, ended_ns, whom)))


def test_each_fault_is_in_one_class() -> None:
    classes = (LEAVES_A_REPLICA, HURTS_THE_GROUP, LEAVES_NONE.keys())
    assert sorted(name for names in classes for name in names) == sorted(ALL_FAULTS)


def test_window_lasts_from_the_start_to_the_end(
    clock: Clock, servability: Servability, windows: list[tuple[int, int, Served]]
) -> None:
    servability.begin(*ALL)
    clock.now_ns = 5
    servability.end(*ALL)
    servability.end(*ALL)
    assert windows == [(0, 5, Served.CLIENTS), (0, 5, Served.GROUP)]


def test_suspended_time_is_in_no_window_and_a_second_suspension_within_it_ends_with_the_first(
    clock: Clock, servability: Servability, windows: list[tuple[int, int, Served]]
) -> None:
    servability.begin(*ALL)
    clock.now_ns = 5
    with servability.suspended(*ALL):
        clock.now_ns = 10
        with servability.suspended(Served.GROUP):
            clock.now_ns = 15
        clock.now_ns = 20
    clock.now_ns = 30
    servability.end(*ALL)
    assert windows == [
        (0, 5, Served.CLIENTS),
        (0, 5, Served.GROUP),
        (20, 30, Served.CLIENTS),
        (20, 30, Served.GROUP),
    ]


def test_fault_of_the_group_leaves_the_window_of_other_clients_unchanged(
    clock: Clock, servability: Servability, windows: list[tuple[int, int, Served]]
) -> None:
    servability.begin(*ALL)
    clock.now_ns = 5
    with servability.suspended(Served.GROUP):
        clock.now_ns = 10
    clock.now_ns = 20
    servability.end(*ALL)
    assert windows == [(0, 5, Served.GROUP), (0, 20, Served.CLIENTS), (10, 20, Served.GROUP)]


def test_postponed_window_starts_later_also_when_postponed_while_suspended(
    clock: Clock, servability: Servability, windows: list[tuple[int, int, Served]]
) -> None:
    servability.begin(Served.CLIENTS)
    clock.now_ns = SECOND_NS
    servability.postpone(5, Served.CLIENTS)
    clock.now_ns = 10 * SECOND_NS
    with servability.suspended(Served.CLIENTS):
        servability.postpone(5, Served.CLIENTS)
    clock.now_ns = 11 * SECOND_NS
    with servability.suspended(Served.CLIENTS):
        pass
    clock.now_ns = 20 * SECOND_NS
    servability.end(Served.CLIENTS)
    assert [(began // SECOND_NS, ended // SECOND_NS) for began, ended, _ in windows] == [(0, 1), (6, 10), (15, 20)]
