from __future__ import annotations

from ottla.broker.processes.keeping import (
    FAILED,
    RESTART_DELAYS_MS,
    STEADY_AFTER_MS,
    STOP_WITHIN_MS,
    Finish,
    Kill,
    ProcessKeeping,
    Reload,
    ReportDelay,
    ReportNotStarted,
    ReportReady,
    Start,
    Terminate,
)
from ottla.model.identifiers import NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def serving() -> ProcessKeeping:
    """Three brokers that serve since the time 0."""
    keeping = ProcessKeeping((ONE, TWO, THREE))
    assert keeping.start(0) == [Start(ONE), Start(TWO), Start(THREE)]
    assert [keeping.on_ready(each) for each in (TWO, ONE)] == [[], []]
    assert keeping.on_ready(THREE) == [ReportReady()]
    return keeping


def test_broker_that_ends_is_started_again_at_once() -> None:
    keeping = serving()
    assert keeping.on_ended(TWO, 5) == [Start(TWO)]
    # It is reported once, when all are ready for the first time.
    assert keeping.on_ready(TWO) == []


def test_broker_that_ends_soon_again_waits_longer_each_time() -> None:
    keeping, now_ms = serving(), 0
    delays_ms = []
    for _ in range(len(RESTART_DELAYS_MS) + 1):
        effects = keeping.on_ended(ONE, now_ms)
        if effects == [Start(ONE)]:
            delays_ms.append(0)
            continue
        (delay,) = effects
        assert isinstance(delay, ReportDelay)
        delays_ms.append(delay.delay_ms)
        assert keeping.next_due_ms == now_ms + delay.delay_ms
        assert keeping.on_time(now_ms + delay.delay_ms - 1) == []
        now_ms += delay.delay_ms
        assert keeping.on_time(now_ms) == [Start(ONE)]
        assert keeping.next_due_ms is None
    assert delays_ms == [*RESTART_DELAYS_MS, RESTART_DELAYS_MS[-1]]


def test_broker_that_ran_for_long_is_started_at_once_again() -> None:
    keeping = serving()
    assert keeping.on_ended(ONE, 1) == [Start(ONE)]
    assert keeping.on_ended(ONE, 1 + STEADY_AFTER_MS) == [Start(ONE)]


def test_broker_that_never_served_ends_all() -> None:
    keeping = ProcessKeeping((ONE, TWO, THREE))
    keeping.start(0)
    keeping.on_ready(ONE)
    assert keeping.on_ended(TWO, 7) == [ReportNotStarted(TWO), Terminate(ONE), Terminate(THREE)]
    assert keeping.on_ended(THREE, 8) == []
    assert keeping.on_ended(ONE, 9) == [Finish(FAILED)]


def test_broker_that_served_once_is_started_again_while_others_have_not() -> None:
    keeping = ProcessKeeping((ONE, TWO))
    keeping.start(0)
    keeping.on_ready(ONE)
    assert keeping.on_ended(ONE, 7) == [Start(ONE)]
    assert keeping.on_ready(TWO) == [ReportReady()]


def test_stop_lets_all_stop_at_once_and_ends_when_none_is_left() -> None:
    keeping = serving()
    assert keeping.stop(10) == [Terminate(ONE), Terminate(TWO), Terminate(THREE)]
    assert keeping.stop(11) == []
    assert [keeping.on_ended(each, 12) for each in (TWO, THREE)] == [[], []]
    assert keeping.on_ended(ONE, 13) == [Finish(0)]
    assert keeping.next_due_ms is None


def test_stop_does_not_wait_for_a_broker_that_was_to_be_started() -> None:
    keeping = serving()
    assert keeping.on_ended(ONE, 1) == [Start(ONE)]
    keeping.on_ended(ONE, 2)
    assert keeping.stop(3) == [Terminate(TWO), Terminate(THREE)]
    assert keeping.on_time(10_000) == []
    assert [keeping.on_ended(each, 4) for each in (TWO, THREE)] == [[], [Finish(0)]]


def test_broker_that_does_not_stop_is_killed() -> None:
    keeping = serving()
    keeping.stop(10)
    assert [keeping.on_ended(each, 12) for each in (TWO, THREE)] == [[], []]
    assert keeping.next_due_ms == 10 + STOP_WITHIN_MS
    assert keeping.on_time(10 + STOP_WITHIN_MS) == [Kill(ONE)]
    assert keeping.on_time(11 + STOP_WITHIN_MS) == []
    assert keeping.on_ended(ONE, 12 + STOP_WITHIN_MS) == [Finish(0)]


def test_brokers_of_a_former_supervisor_are_not_started_but_kept() -> None:
    keeping = ProcessKeeping((ONE, TWO), serving=(ONE,))
    assert keeping.start(0) == [Start(TWO)]
    assert keeping.on_ready(TWO) == [ReportReady()]
    assert keeping.on_ended(ONE, 5) == [Start(ONE)]


def test_brokers_of_a_former_supervisor_serve_as_soon_as_there_is_a_supervisor() -> None:
    assert ProcessKeeping((ONE,), serving=(ONE,)).start(0) == [ReportReady()]


def test_stop_before_the_start_ends_those_of_a_former_supervisor() -> None:
    keeping = ProcessKeeping((ONE, TWO), serving=(TWO,))
    assert keeping.stop(0) == [Terminate(TWO)]
    assert keeping.on_ended(TWO, 1) == [Finish(0)]


def test_stop_before_the_start_of_any_broker_ends_at_once() -> None:
    assert ProcessKeeping((ONE, TWO)).stop(0) == [Finish(0)]


def test_certificates_are_loaded_again_by_those_that_serve_and_by_others_when_they_are_ready() -> None:
    keeping = ProcessKeeping((ONE, TWO, THREE))
    keeping.start(0)
    keeping.on_ready(ONE)
    # The signal would end those that start.
    assert keeping.reload() == [Reload(ONE)]
    assert keeping.reload() == [Reload(ONE)]
    assert keeping.on_ready(TWO) == [Reload(TWO)]
    assert keeping.on_ready(THREE) == [Reload(THREE), ReportReady()]
    assert keeping.reload() == [Reload(ONE), Reload(TWO), Reload(THREE)]


def test_broker_that_is_started_after_certificates_have_changed_need_not_load_them_again() -> None:
    keeping = serving()
    assert keeping.on_ended(ONE, 1) == [Start(ONE)]
    assert keeping.reload() == [Reload(TWO), Reload(THREE)]
    (delay,) = keeping.on_ended(ONE, 2)
    assert isinstance(delay, ReportDelay)
    assert keeping.on_time(2 + delay.delay_ms) == [Start(ONE)]
    assert keeping.on_ready(ONE) == []
