"""What a consumer returns and commits, and what its user's code is notified of: without threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.membership.membership import Failed
from ottla.client.streams.consumer import PolledStream
from ottla.client.streams.consumer_api import Callbacks, ConsumerSession
from ottla.client.streams.errors import (
    CommitFailed,
    ConsumerBusy,
    NoPosition,
    NotAssigned,
    PoisonMessage,
    RebalanceInProgress,
)
from ottla.client.streams.rebalance_changes import Changes
from ottla.client.streams.seek_target import target_of
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.records.end_marker import EndMarker, build_end_marker
from tests.unit.client.streams.scripted import Desk, batch_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class PolledDesk(Desk):
    """One consumer; `notices` are what its user's code was called with."""

    def __init__(self, *, notifies: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.buffer = self.buffers[0]
        self.buffer.notify(notifies=notifies)
        self.notices: list[tuple[str, list[TopicPartition]]] = []
        # The user's code.
        self.on_changes: Callable[[Changes], object] = lambda changes: None
        session = SimpleNamespace(engine=self.engine, buffer=self.buffer, hold=None)
        self.stream: PolledStream[Any, Any] = PolledStream(cast("ConsumerSession", session), self._notify)

    def _notify(self, _session: ConsumerSession) -> None:
        changes = self.engine.take_changes(self.buffer)
        self.notices += [(name, partitions) for name, partitions in changes._asdict().items() if partitions]
        self.on_changes(changes)
        self.engine.on_notified(self.buffer, changes.revoked)

    def poll(self) -> int | None:
        message = self.stream.poll(0)
        return None if message is None else message.offset

    def poll_many(self, count: int = 500) -> list[tuple[int, int]]:
        return [(message.partition, message.offset) for message in self.stream.poll_many(count, 0)]

    def commit_by_time(self) -> list[tuple[TopicPartition, ClaimId, int]]:
        """What the next automatic commit commits."""
        self.membership.committed.clear()
        self.clock.advance(self.settings.auto_commit_interval_ms)
        self.engine.on_time()
        return list(self.membership.committed)


def test_lost_partitions_are_revoked_only_where_on_lost_is_none() -> None:
    class Calls(list[tuple[object, list[TopicPartition]]]):
        """A callable that is false while it is empty."""

        def __call__(self, consumer: object, partitions: list[TopicPartition]) -> None:
            self.append((consumer, partitions))

    revoked, lost = Calls(), Calls()
    changes = Changes(lost=[T0], revoked=[], assigned=[])
    [(with_both, _)] = Callbacks(on_revoke=revoked, on_lost=lost).due(changes)
    [(with_one, _)] = Callbacks(on_revoke=revoked).due(changes)
    assert with_both is lost
    assert with_one is revoked


def test_a_poll_returns_the_next_message_or_none_in_time() -> None:
    desk = PolledDesk()
    desk.start(0, 7)
    assert desk.poll() is None
    desk.bring(0, [b"a", b"b"])
    assert [desk.poll(), desk.poll(), desk.poll()] == [7, 8, None]


def test_a_poll_passes_the_message_before_it() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    desk.poll()
    assert desk.commit_by_time() == []
    desk.poll()
    assert desk.commit_by_time() == [(T0, claim, 1)]


def test_many_messages_come_from_all_partitions_and_batches_that_are_there() -> None:
    desk = PolledDesk()
    for partition in range(2):
        desk.start(partition, 0)
        desk.bring_records(partition, 0, 4, batch_of(0, [b"a", b"b"]) + batch_of(2, [b"c", b"d"]))
    assert desk.poll_many(5) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    assert desk.poll_many() == [(0, 3), (1, 2), (1, 3)]
    assert desk.poll_many() == []


def test_many_messages_are_passed_by_the_next_request_and_not_before() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.bring_records(0, 0, 6, batch_of(0, [b"a"] * 2) + batch_of(2, [b"a"] * 4))
    assert len(desk.poll_many(3)) == 3
    assert desk.commit_by_time() == [], "none of the three is processed yet"
    assert len(desk.poll_many(2)) == 2
    assert desk.commit_by_time() == [(T0, claim, 3)]
    desk.confirm(0, claim, 3)
    assert desk.poll() == 5
    desk.poll()
    assert desk.commit_by_time() == [(T0, claim, 6)]


def test_a_commit_includes_all_that_was_returned() -> None:
    desk = PolledDesk(enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 9)
    desk.poll_many(4)
    desk.engine.commit_all(desk.buffer)
    desk.confirm(0, claim, 4)
    desk.poll()
    desk.engine.commit_all(desk.buffer)
    assert desk.membership.committed == [(T0, claim, 4), (T0, claim, 5)]


def desk_with_code_in_the_deserializer(value: bytes, code: Callable[[PolledDesk], object]) -> PolledDesk:
    """`code` runs as if another thread ran it when the message with this value was taken, and before it is returned."""

    def deserialize(each: bytes) -> bytes:
        if each == value:
            code(desk)
        return each

    desk = PolledDesk(deserializer=deserialize, enable_auto_commit=False)
    return desk


def poll_all(desk: PolledDesk) -> list[int]:
    return list(iter(desk.poll, None))


def test_a_commit_by_another_thread_leaves_out_the_message_that_is_being_taken() -> None:
    desk = desk_with_code_in_the_deserializer(b"c", lambda desk: desk.engine.commit_all(desk.buffer))
    claim = desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    assert [desk.poll(), desk.poll(), desk.poll()] == [0, 1, 2]
    assert desk.membership.committed == [(T0, claim, 2)]
    desk.engine.commit_all(desk.buffer)
    assert desk.membership.committed[1:] == [(T0, claim, 3)], "it was returned meanwhile"


@pytest.mark.parametrize("pauses_first", [False, True])
def test_a_message_that_was_committed_around_and_paused_away_is_returned_after_the_resume(pauses_first: bool) -> None:
    def commit_and_pause(desk: PolledDesk) -> None:
        if pauses_first:
            desk.engine.pause(desk.buffer, [T0])
        desk.engine.commit_all(desk.buffer)
        desk.engine.pause(desk.buffer, [T0])

    desk = desk_with_code_in_the_deserializer(b"c", commit_and_pause)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    assert poll_all(desk) == [0, 1]
    assert desk.membership.committed == [(T0, claim, 2)]
    desk.engine.resume(desk.buffer, [T0])
    desk.bring(0, [b"again", b"d"])
    assert poll_all(desk) == [2, 3]


def test_a_message_that_was_committed_around_and_revoked_away_is_left_to_the_next_member() -> None:
    def commit_and_lose_the_partition(desk: PolledDesk) -> None:
        desk.engine.commit_all(desk.buffer)
        desk.revoke(0, claim)

    desk = desk_with_code_in_the_deserializer(b"c", commit_and_lose_the_partition)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    assert poll_all(desk) == [0, 1]
    assert desk.membership.committed == desk.membership.stopped == [(T0, claim, 2)]


def test_a_commit_by_another_thread_leaves_out_messages_that_are_collected() -> None:
    desk = desk_with_code_in_the_deserializer(b"d", lambda desk: desk.engine.commit_all(desk.buffer))
    claim = desk.start(0, 0)
    desk.bring_records(0, 0, 5, batch_of(0, [b"a", b"b", b"c"]) + batch_of(3, [b"d", b"e"]))
    assert desk.poll() == 0
    assert desk.poll_many() == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert desk.membership.committed == [(T0, claim, 1)]
    desk.engine.commit_all(desk.buffer)
    assert desk.membership.committed[1:] == [(T0, claim, 5)]


def test_a_commit_after_an_interrupted_poll_leaves_out_the_message_that_it_took() -> None:
    def interrupt(_: PolledDesk) -> None:
        raise KeyboardInterrupt

    desk = desk_with_code_in_the_deserializer(b"c", interrupt)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    with pytest.raises(KeyboardInterrupt):
        poll_all(desk)
    desk.engine.commit_all(desk.buffer)
    assert desk.membership.committed == [(T0, claim, 2)]
    desk.engine.pause(desk.buffer, [T0])
    desk.engine.resume(desk.buffer, [T0])
    desk.bring(0, [b"again", b"d"])
    assert poll_all(desk) == [2, 3]


def test_a_message_that_cannot_be_read_and_was_paused_away_is_raised_after_the_resume() -> None:
    def pause_and_fail(desk: PolledDesk) -> None:
        desk.engine.pause(desk.buffer, [T0])
        raise ValueError

    desk = desk_with_code_in_the_deserializer(b"c", pause_and_fail)
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    assert poll_all(desk) == [0, 1]
    desk.engine.resume(desk.buffer, [T0])
    order = desk.order(0)
    assert order is not None
    assert order.offset == 2


def test_a_batch_without_messages_does_not_keep_a_revoked_partition() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.bring_records(0, 0, 1, bytes(build_end_marker(EndMarker(True, 0), 7, 0, 1_000)))
    assert desk.poll_many() == []
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 1)]


def test_named_offsets_are_committed_as_they_are() -> None:
    desk = PolledDesk(enable_auto_commit=False)
    claim = desk.start(0, 5)
    outcome = desk.engine.commit_offsets(desk.buffer, {T0: 2})
    assert desk.membership.committed == [(T0, claim, 2)]
    desk.confirm(0, claim, 2)
    assert outcome.is_known
    with pytest.raises(NotAssigned, match="t-1 is not assigned"):
        desk.engine.commit_offsets(desk.buffer, {T0: 3, T1: 3})
    assert len(desk.membership.committed) == 1, "none is committed where one cannot be"


def test_the_position_is_after_the_last_message_that_was_returned() -> None:
    desk = PolledDesk()
    desk.start(0)
    assert desk.engine.read_position(desk.buffer, T0) is None
    desk.answer(0, 3)
    desk.bring(0, [b"a"] * 5)
    positions = [desk.engine.read_position(desk.buffer, T0)]
    for _ in range(2):
        desk.poll()
        positions.append(desk.engine.read_position(desk.buffer, T0))
    desk.poll_many(2)
    assert [*positions, desk.engine.read_position(desk.buffer, T0)] == [3, 4, 5, 7]


def test_a_paused_partition_returns_nothing_and_continues_after_its_last_message() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.start(1, 0)
    desk.bring(0, [b"a"] * 5)
    assert [desk.poll(), desk.poll()] == [0, 1]
    desk.engine.pause(desk.buffer, [T0])
    assert desk.order(0) is None
    desk.bring(1, [b"b"])
    assert (desk.stream.poll(0) or [])[1] == 1
    assert desk.poll() is None
    assert desk.commit_by_time()[0] == (T0, claim, 2)
    desk.engine.resume(desk.buffer, [T0])
    assert desk.bring(0, [b"a"] * 3)
    assert [desk.poll() for _ in range(4)] == [2, 3, 4, None]


def test_a_pause_between_two_polls_passes_nothing() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    desk.poll_many(2)
    desk.engine.pause(desk.buffer, [T0])
    assert desk.commit_by_time() == []
    assert desk.poll() is None
    assert desk.commit_by_time() == [(T0, claim, 2)]


def test_a_pause_does_not_pass_the_message_in_hand() -> None:
    desk = PolledDesk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    assert [desk.poll(), desk.poll()] == [0, 1]
    desk.engine.pause(desk.buffer, [T0])
    assert desk.commit_by_time() == [(T0, claim, 1)]
    desk.confirm(0, claim, 1)
    assert desk.poll() is None
    assert desk.commit_by_time() == [(T0, claim, 2)]


def test_a_message_that_another_thread_paused_away_is_returned_after_the_resume() -> None:
    def deserialize(value: bytes) -> bytes:
        """As another thread that pauses when the message was taken, and before it is returned."""
        if value == b"c":
            desk.engine.pause(desk.buffer, [T0])
        return value

    desk = PolledDesk(deserializer=deserialize)
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c", b"d"])
    assert desk.poll_many() == [(0, 0), (0, 1)]
    desk.engine.resume(desk.buffer, [T0])
    desk.bring(0, [b"again", b"d"])
    assert desk.poll_many() == [(0, 2), (0, 3)]


def test_a_position_that_is_missing_is_raised_after_a_pause_in_the_callback_and_a_resume() -> None:
    desk = PolledDesk(notifies=True, auto_offset_reset="error")
    desk.on_changes = lambda changes: desk.engine.pause(desk.buffer, changes.assigned)
    desk.start(0)
    assert desk.poll() is None
    desk.engine.resume(desk.buffer, [T0])
    with pytest.raises(NoPosition, match="no offset of t-0"):
        desk.poll()


def test_what_was_fetched_before_a_pause_is_not_returned_twice() -> None:
    desk = PolledDesk()
    desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    assert desk.poll_many(2) == [(0, 0), (0, 1)]
    desk.engine.pause(desk.buffer, [T0])
    desk.engine.resume(desk.buffer, [T0])
    desk.bring_records(0, 2, 5, batch_of(0, [b"a"] * 5))
    assert desk.poll_many() == [(0, 2), (0, 3), (0, 4)]


def test_what_is_done_with_all_partitions_leaves_out_those_that_are_revoked() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.start(1, 5)
    desk.poll()
    desk.engine.pause(desk.buffer, None)
    assert desk.engine.paused(desk.buffer) == [T0, T1]
    desk.revoke(0, claim)
    assert desk.engine.paused(desk.buffer) == [T1]
    assert desk.engine.read_positions(desk.buffer) == {T1: 5}
    desk.engine.resume(desk.buffer, None)
    assert desk.engine.paused(desk.buffer) == []
    desk.engine.seek(desk.buffer, None, target_of(9, None))
    assert desk.engine.read_positions(desk.buffer) == {T1: 9}
    desk.poll()
    assert desk.membership.stopped == [(T0, claim, 0)], "the seek has not moved it"


def test_a_partition_that_was_paused_before_it_starts_returns_nothing_before_the_resume() -> None:
    desk = PolledDesk(auto_offset_reset="error")
    for partition in (T0, T1):
        desk.engine.pause(desk.buffer, [partition], may_start={T0, T1})
    assert desk.engine.paused(desk.buffer) == [T0, T1]
    desk.engine.resume(desk.buffer, [T1], may_start={T0, T1})
    desk.start(0, 3)
    desk.start(1, 7)
    assert (desk.order(0), desk.engine.paused(desk.buffer)) == (None, [T0])
    desk.bring(1, [b"a"])
    assert desk.poll_many() == [(1, 7)]
    desk.engine.resume(desk.buffer, [T0], may_start={T0, T1})
    desk.bring(0, [b"a"])
    assert desk.poll_many() == [(0, 3)]


def test_a_place_that_is_given_before_a_partition_starts_replaces_the_groups() -> None:
    desk = PolledDesk()
    desk.engine.start_at(desk.buffer, T0, target_of(40, None))
    desk.start(0, 7)
    desk.bring(0, [b"a"])
    assert desk.poll() == 40


def test_an_assignment_is_announced_before_its_first_message() -> None:
    desk = PolledDesk(notifies=True)
    desk.start(0, 0)
    desk.bring(0, [b"a"])
    assert desk.engine.next_hand_out(desk.buffer) is None
    assert desk.poll() == 0
    assert desk.notices == [("assigned", [T0])]


def test_a_seek_in_the_callback_decides_the_first_message() -> None:
    desk = PolledDesk(notifies=True)
    desk.start(0, 0)
    desk.bring(0, [b"a"])
    desk.on_changes = lambda _: desk.engine.seek(desk.buffer, [T0], target_of(30, None))
    assert desk.poll() is None
    desk.bring(0, [b"a"])
    assert desk.poll() == 30


def test_a_revoked_partition_is_given_back_after_the_callback_with_all_that_was_returned() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll() == 0
    desk.revoke(0, claim)
    desk.engine.on_time()
    assert desk.membership.stopped == []
    stopped_before: list[object] = []
    desk.on_changes = lambda _: stopped_before.extend(desk.membership.stopped)
    assert desk.poll() is None
    assert (desk.notices[1:], stopped_before) == ([("revoked", [T0])], [])
    assert desk.membership.stopped == [(T0, claim, 1)]
    desk.release(0, claim)
    assert desk.poll() is None
    assert len(desk.notices) == 2


def test_a_commit_in_the_callback_is_committed_with_the_release() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll_many(2)
    desk.revoke(0, claim)
    outcomes = []
    desk.on_changes = lambda _: outcomes.append(desk.engine.commit_all(desk.buffer))
    assert desk.poll() is None
    assert desk.membership.stopped == [(T0, claim, 2)]
    desk.release(0, claim)
    assert [outcome.is_known for outcome in outcomes] == [True]


def test_a_commit_before_the_callback_does_not_give_the_partition_back() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll_many(2)
    desk.revoke(0, claim)
    desk.engine.commit_all(desk.buffer)
    assert desk.membership.stopped == []
    desk.poll()
    assert desk.notices[-1] == ("revoked", [T0])
    assert desk.membership.stopped == [(T0, claim, 2)]


def test_named_offsets_of_a_revoked_partition_are_committed_with_its_release() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll_many(3)
    desk.revoke(0, claim)
    desk.on_changes = lambda _: desk.engine.commit_offsets(desk.buffer, {T0: 1})
    desk.poll()
    assert desk.membership.stopped == [(T0, claim, 1)]


def test_a_partition_that_no_poll_gave_back_in_time_is_lost() -> None:
    desk = PolledDesk(notifies=True, release_wait_ms=1_000)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    desk.poll()
    desk.revoke(0, claim)
    desk.clock.advance(1_000)
    desk.engine.on_time()
    assert desk.membership.stopped == [(T0, claim, 0)]
    desk.release(0, claim)
    desk.poll()
    assert desk.notices == [("assigned", [T0]), ("lost", [T0])]


def test_a_lost_partition_is_reported_once() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.poll()
    desk.lose(0, claim)
    desk.poll()
    claim = desk.start(0, 0)
    desk.poll()
    assert desk.notices == [("assigned", [T0]), ("lost", [T0]), ("assigned", [T0])]


def test_an_assignment_that_ends_before_a_poll_is_never_announced() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.revoke(0, claim)
    desk.release(0, claim)
    desk.lose(1, desk.start(1, 0))
    desk.poll()
    assert desk.notices == []


def test_partitions_that_await_a_callback_are_given_back_when_one_is_lost_after_the_callbacks_are_gone() -> None:
    desk = PolledDesk(notifies=True)
    first, second = desk.start(0, 0), desk.start(1, 0)
    desk.poll()
    desk.revoke(0, first)
    desk.revoke(1, second)
    desk.buffer.notify(notifies=False)
    desk.lose(0, first)
    assert desk.poll() is None
    assert desk.membership.stopped == [(T1, second, 0)]


def test_an_assignment_that_ends_without_callbacks_is_not_announced_to_later_ones() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.buffer.notify(notifies=False)
    desk.revoke(0, claim)
    desk.release(0, claim)
    desk.buffer.notify(notifies=True)
    desk.poll()
    assert desk.notices == []


def test_losses_are_announced_before_the_error_that_ends_the_membership() -> None:
    desk = PolledDesk(notifies=True)
    desk.start(0, 0)
    desk.poll()
    desk.engine.on_events([Failed(OttlaError("not allowed"))])
    with pytest.raises(OttlaError, match="not allowed"):
        desk.poll()
    assert desk.notices[-1] == ("lost", [T0])


def test_the_messages_before_one_that_cannot_be_read_are_returned_first() -> None:
    def deserialize(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError(value)
        return value

    desk = PolledDesk(deserializer=deserialize)
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"bad", b"c"])
    assert desk.poll_many() == [(0, 0), (0, 1)]
    for _ in range(2):
        with pytest.raises(PoisonMessage):
            desk.poll_many()
    desk.engine.skip(desk.buffer)
    assert desk.poll_many() == [(0, 3)]


def test_messages_of_an_interrupted_request_are_returned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = PolledDesk()
    desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll() == 0

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(desk.stream, "_next_messages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.poll_many()
    desk.bring(0, [b"a"] * 2)
    assert desk.poll_many() == [(0, 1), (0, 2)]


def test_a_poll_within_a_callback_is_refused() -> None:
    desk = PolledDesk(notifies=True)
    desk.start(0, 0)
    desk.on_changes = lambda _: desk.poll()
    with pytest.raises(ConsumerBusy):
        desk.poll()


def test_a_second_thread_is_refused_while_one_polls() -> None:
    desk = PolledDesk()
    desk.start(0, 0)
    refused: list[BaseException] = []
    polls = threading.Event()

    def wait_for_a_message() -> None:
        polls.set()
        while True:
            with suppress(ConsumerBusy):
                assert desk.stream.poll(None) is not None
                return

    thread = threading.Thread(target=wait_for_a_message)
    thread.start()
    polls.wait()
    while not refused:
        try:
            desk.stream.poll_many(1, 0)
        except ConsumerBusy as error:
            refused.append(error)
    desk.bring(0, [b"a"])
    thread.join()
    assert "being polled" in str(refused[0])


def test_a_loop_continues_after_a_message_that_cannot_be_read() -> None:
    def deserialize(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError(value)
        return value

    desk = PolledDesk(deserializer=deserialize)
    desk.start(0, 0)
    desk.bring(0, [b"a", b"bad", b"c"])
    messages = iter(desk.stream)
    assert next(messages).offset == 0
    with pytest.raises(PoisonMessage):
        next(messages)
    desk.engine.skip(desk.buffer)
    assert next(messages).offset == 2


def test_a_loop_ends_when_the_consumer_is_closed() -> None:
    desk = PolledDesk()
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b"])
    seen = []
    for message in desk.stream:
        seen.append(message.offset)
        if message.offset == 1:
            desk.engine.begin_close(threading.get_ident())
    assert seen == [0, 1]


def test_a_close_in_the_callback_gives_the_partition_back_before_the_callback_ends() -> None:
    desk = PolledDesk(notifies=True)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert [desk.poll(), desk.poll()] == [0, 1]
    desk.revoke(0, claim)
    stopped_before: list[object] = []

    def close(_changes: Changes) -> None:
        desk.engine.begin_close(threading.get_ident())
        stopped_before.extend(desk.membership.stopped)

    desk.on_changes = close
    assert desk.poll() is None
    assert stopped_before == [(T0, claim, 2)]
    assert desk.membership.stopped == stopped_before, "it is given back once"


def test_a_close_by_another_thread_leaves_the_callback_its_commit() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert [desk.poll(), desk.poll()] == [0, 1]
    desk.revoke(0, claim)

    def close_elsewhere_and_commit(_changes: Changes) -> None:
        desk.engine.begin_close(threading.get_ident() + 1)
        assert desk.membership.stopped == []
        desk.engine.commit_all(desk.buffer)

    desk.on_changes = close_elsewhere_and_commit
    assert desk.poll() is None
    assert desk.membership.stopped == [(T0, claim, 2)]


def test_a_commit_of_all_that_was_returned_runs_the_callback_and_waits_for_the_release() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert [desk.poll(), desk.poll()] == [0, 1]
    desk.revoke(0, claim)
    outcome = desk.engine.commit_offsets(desk.buffer, {T0: 2})
    desk.stream.notify_before_releases(outcome)
    assert desk.notices[-1] == ("revoked", [T0])
    assert desk.membership.stopped == [(T0, claim, 2)]
    desk.engine.check_not_deferred(outcome)
    known = [outcome.is_known]
    desk.lose(0, claim)
    assert [*known, outcome.is_known] == [False, True]
    assert "was lost" in str(outcome.error)


def test_a_commit_in_the_callback_of_a_commit_and_that_one_learn_of_the_release() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll_many(2)
    desk.revoke(0, claim)
    outcomes = [desk.engine.commit_all(desk.buffer)]
    desk.on_changes = lambda _: outcomes.append(desk.engine.commit_all(desk.buffer))
    desk.stream.notify_before_releases(outcomes[0])
    assert [outcome.is_known for outcome in outcomes] == [False, False]
    desk.release(0, claim)
    assert [(outcome.is_known, outcome.error) for outcome in outcomes] == [(True, None)] * 2


def test_a_commit_of_some_messages_runs_no_callback_that_would_commit_the_others() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    other = desk.start(1, 0)
    for partition in range(2):
        desk.bring(partition, [b"a"] * 2)
    assert len(desk.poll_many()) == 4
    desk.revoke(0, claim)
    desk.on_changes = lambda _: desk.engine.commit_all(desk.buffer)
    outcome = desk.engine.commit_offsets(desk.buffer, {T0: 2})
    desk.stream.notify_before_releases(outcome)
    assert (desk.notices[1:], desk.membership.committed) == ([], [])
    with pytest.raises(RebalanceInProgress, match="t-0") as refused:
        desk.engine.check_not_deferred(outcome)
    assert isinstance(refused.value, CommitFailed)
    desk.poll()
    assert desk.membership.stopped == [(T0, claim, 2)]
    assert desk.membership.committed == [(T1, other, 2)]


def test_a_commit_by_another_thread_than_that_which_reads_runs_no_callback() -> None:
    desk = PolledDesk(notifies=True, enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    assert desk.poll_many(2)
    desk.revoke(0, claim)
    outcome = desk.engine.commit_all(desk.buffer)
    thread = threading.Thread(target=desk.stream.notify_before_releases, args=(outcome,))
    thread.start()
    thread.join()
    assert desk.notices == [("assigned", [T0])]
    with pytest.raises(RebalanceInProgress):
        desk.engine.check_not_deferred(outcome)
