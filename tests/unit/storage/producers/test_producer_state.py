from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.records.end_marker import EndMarker
from ottla.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.storage.errors import BeginningMissing, InvalidProducerEpoch, OutOfOrderSequence
from ottla.storage.producers import producer_state
from ottla.storage.producers.producer_state import EXPIRATION_MS, SEQUENCE_MASK, ProducerStates

PRODUCER = 7
NOW_MS = 1_000_000


def appended(states: ProducerStates, first: int, last: int, base_offset: int, epoch: int = 0) -> None:
    """A batch that is checked and then appended, as a log does it."""
    assert states.check(PRODUCER, epoch, first, last) is None
    states.update(PRODUCER, epoch, first, last, base_offset, (last - first) & SEQUENCE_MASK, NOW_MS)


def header(base_offset: int, first: int, count: int, *, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    return BatchHeader(base_offset, 100, 0, 2, 0, attributes, count - 1, 0, 0, PRODUCER, epoch, first, count)


@pytest.fixture
def states() -> ProducerStates:
    return ProducerStates()


def test_unknown_producer_may_start_anywhere(states: ProducerStates) -> None:
    assert states.check(PRODUCER, 3, 4711, 4720) is None
    states.update(PRODUCER, 3, 4711, 4720, 0, 9, NOW_MS)
    assert states.check(PRODUCER, 3, 4721, 4721) is None


def test_unknown_producer_must_start_with_0_where_starts_are_expected(states: ProducerStates) -> None:
    states.expect_beginnings(True)
    with pytest.raises(BeginningMissing):
        states.check(PRODUCER, 3, 1, 1)
    appended(states, 0, 0, 0)
    appended(states, 1, 1, 1)
    states.expect_beginnings(False)
    assert states.check(PRODUCER + 1, 3, 4711, 4720) is None


def test_repeated_batch_gets_its_original_base_offset_while_it_is_among_the_last_five(states: ProducerStates) -> None:
    for number in range(6):
        appended(states, number * 10, number * 10 + 9, 1_000 + number * 10)
    for number in range(1, 6):
        assert states.check(PRODUCER, 0, number * 10, number * 10 + 9) == 1_000 + number * 10
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 0, 0, 9)


@pytest.mark.parametrize(("first", "last"), [(0, 8), (1, 9), (0, 10), (5, 14), (11, 12), (-1, -1)])
def test_overlap_and_gap_are_out_of_order(states: ProducerStates, first: int, last: int) -> None:
    appended(states, 0, 9, 0)
    with pytest.raises(OutOfOrderSequence, match="10 is the next one"):
        states.check(PRODUCER, 0, first, last)


def test_check_changes_nothing(states: ProducerStates) -> None:
    appended(states, 0, 9, 0)
    assert states.check(PRODUCER, 0, 10, 19) is None
    assert states.check(PRODUCER, 0, 10, 14) is None
    assert states.check(PRODUCER, 1, 0, 0) is None
    assert states.check(PRODUCER, 0, 0, 9) == 0


def test_sequence_wraps_to_zero_behind_the_greatest(states: ProducerStates) -> None:
    appended(states, 2**31 - 3, 2**31 - 1, 50)
    appended(states, 0, 4, 53)
    assert states.check(PRODUCER, 0, 2**31 - 3, 2**31 - 1) == 50
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 0, 0, 3)


def test_batch_whose_own_sequences_wrap_is_followed_and_recognised(states: ProducerStates) -> None:
    appended(states, 2**31 - 2, 1, 50)
    assert states.check(PRODUCER, 0, 2**31 - 2, 1) == 50
    appended(states, 2, 2, 54)


def test_lower_epoch_is_fenced(states: ProducerStates) -> None:
    appended(states, 0, 9, 0, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        states.check(PRODUCER, 3, 10, 10)


def test_higher_epoch_must_start_with_zero_and_forgets_the_former_batches(states: ProducerStates) -> None:
    appended(states, 0, 9, 0)
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 1, 10, 10)
    appended(states, 0, 4, 10, epoch=1)
    assert states.check(PRODUCER, 1, 0, 4) == 10
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 1, 0, 9)


def test_producers_do_not_see_each_other(states: ProducerStates) -> None:
    appended(states, 0, 9, 0)
    assert states.check(PRODUCER + 1, 0, 0, 9) is None


def test_replayed_batches_give_the_state_that_appends_gave(states: ProducerStates) -> None:
    replayed = ProducerStates()
    for number in range(7):
        appended(states, number * 10, number * 10 + 9, 100 + number * 10)
        replayed.replay(header(100 + number * 10, number * 10, 10), None, NOW_MS)
    live, rebuilt = states.entry(PRODUCER), replayed.entry(PRODUCER)
    assert live is not None
    assert rebuilt is not None
    assert live.window() == rebuilt.window()
    assert live.next_sequence == rebuilt.next_sequence == 70


def test_replay_passes_over_batches_without_a_producer(states: ProducerStates) -> None:
    states.replay(header(0, 0, 1)._replace(producer_id=-1), None, NOW_MS)
    assert len(states) == 0


def test_marker_ends_the_transaction_and_keeps_the_window(states: ProducerStates) -> None:
    states.replay(header(10, 0, 5, attributes=TRANSACTIONAL_BIT), None, NOW_MS)
    states.replay(header(15, 5, 5, attributes=TRANSACTIONAL_BIT), None, NOW_MS)
    entry = states.entry(PRODUCER)
    assert entry is not None
    assert entry.current_txn_first_offset == 10
    states.replay(header(20, -1, 1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT), EndMarker(True, 3), NOW_MS)
    assert entry.current_txn_first_offset == -1
    assert entry.coordinator_epoch == 3
    assert states.check(PRODUCER, 0, 0, 4) == 10
    assert states.check(PRODUCER, 0, 10, 10) is None


def test_marker_of_a_new_epoch_starts_it_at_zero(states: ProducerStates) -> None:
    states.replay(header(10, 0, 5), None, NOW_MS)
    states.replay(header(15, -1, 1, epoch=1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT), EndMarker(True, 3), NOW_MS)
    assert states.check(PRODUCER, 1, 0, 0) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(PRODUCER, 1, 5, 5)


def test_silent_producer_is_forgotten_after_its_time(states: ProducerStates) -> None:
    appended(states, 0, 9, 0)
    assert states.expire(NOW_MS + EXPIRATION_MS - 1) == 0
    assert states.expire(NOW_MS + EXPIRATION_MS) == 1
    assert len(states) == 0


def test_producer_with_an_open_transaction_is_kept(states: ProducerStates) -> None:
    states.replay(header(10, 0, 5, attributes=TRANSACTIONAL_BIT), None, NOW_MS)
    assert states.expire(NOW_MS + 10 * EXPIRATION_MS) == 0


def test_longest_silent_producers_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 100)
    states = ProducerStates()
    for producer_id in range(101):
        states.update(producer_id, 0, 0, 0, producer_id, 0, NOW_MS + (producer_id + 50) % 100)
    assert len(states) == 91
    assert all(states.entry(producer_id) is None for producer_id in range(50, 60))
    assert states.entry(100) is not None


@pytest.mark.parametrize("refused", [lambda s: s.check(PRODUCER, 0, 5, 5), lambda s: s.check(PRODUCER, -1, 10, 10)])
def test_refusals_leave_the_window_as_it_is(
    states: ProducerStates, refused: Callable[[ProducerStates], object]
) -> None:
    appended(states, 0, 9, 0)
    with pytest.raises((OutOfOrderSequence, InvalidProducerEpoch)):
        refused(states)
    appended(states, 10, 10, 10)
