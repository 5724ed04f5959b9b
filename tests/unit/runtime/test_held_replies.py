from __future__ import annotations

import pytest

from ottla.runtime.held_replies import HeldReplies


def test_replies_leave_in_their_order_when_the_log_is_stable_up_to_their_end() -> None:
    held, told = HeldReplies(), list[object]()
    for number, end in enumerate([3, 3, 5, 9]):
        held.hold(end, told.append, number)
    held.release(2)
    assert told == []
    held.release(5)
    assert told == [0, 1, 2]
    held.release(9)
    assert told == [0, 1, 2, 3]
    assert len(held) == 0


def test_failing_answers_each_once_with_what_replaces_it() -> None:
    held, told = HeldReplies(), list[object]()
    held.hold(3, told.append, "yes")
    held.hold(4, told.append, "also")
    held.fail(lambda reply: f"not {reply}")
    held.release(10)
    assert told == ["not yes", "not also"]


def test_reply_may_hold_another_while_it_is_called() -> None:
    held, told = HeldReplies(), list[object]()

    def reply(value: object) -> None:
        told.append(value)
        held.hold(7, told.append, "next")

    held.hold(3, reply, "first")
    held.release(7)
    assert told == ["first", "next"]


def test_replies_that_come_back_a_thousand_times_do_not_go_deeper() -> None:
    held, told = HeldReplies(), list[object]()

    def reply(value: object) -> None:
        told.append(value)
        held.release(1)

    for number in range(5_000):
        held.hold(1, reply, number)
    held.release(1)
    assert told == list(range(5_000))


def test_reply_that_fails_does_not_stop_the_others_for_ever() -> None:
    held, told = HeldReplies(), list[object]()

    def fail(value: object) -> None:
        raise ValueError(value)

    held.hold(1, fail, "bad")
    held.hold(1, told.append, "good")
    with pytest.raises(ValueError, match="bad"):
        held.release(1)
    held.release(1)
    assert told == ["good"]
