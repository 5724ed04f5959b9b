"""No message is left out after any end of a loop when the stream is iterated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.identifiers import TopicPartition
from tests.unit.client.streams.scripted import Desk, as_fetch_thread

T0 = TopicPartition("t", 0)


def interrupted_at(content: bytes) -> Callable[[bytes], bytes]:
    """A deserializer in which the user presses Ctrl-C, once."""
    left = [content]

    def deserialize(each: bytes) -> bytes:
        if each in left:
            left.remove(each)
            raise KeyboardInterrupt
        return each

    return deserialize


def test_interrupt_while_a_message_is_made_leaves_nothing_out() -> None:
    desk = Desk(deserializer=interrupted_at(b"b"))
    claim = desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c"])
    with pytest.raises(KeyboardInterrupt):
        desk.offsets()
    assert desk.offsets() == []
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 1)]
    desk.bring(0, [b"b", b"c"])
    assert desk.offsets() == [1, 2]


def test_interrupt_before_a_batch_is_begun_leaves_nothing_out() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b"])
    assert desk.engine.next_hand_out(desk.buffers[0]) is not None, (
        "the caller is interrupted before it does anything with it"
    )
    assert desk.offsets() == []
    desk.bring(0, [b"a", b"b"])
    assert desk.offsets() == [0, 1]


def test_interrupt_while_a_batch_is_looked_for_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b"])

    def interrupted() -> Any:
        taken = type(desk.buffers[0].prefetched).next_batch(desk.buffers[0].prefetched)
        assert taken is not None
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(desk.buffers[0].prefetched, "next_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        desk.offsets()
    assert desk.offsets() == []
    again = as_fetch_thread(desk.engine, lambda machine: machine.take_orders())
    assert [(partition, order and order.offset) for partition, order in again.items()] == [(T0, 0)]


def test_next_within_a_loop_takes_the_message_after_the_one_of_the_loop() -> None:
    desk = Desk()
    desk.start(0, 0)
    for _ in range(3):
        desk.bring(0, [b"a", b"b", b"c"])
        as_fetch_thread(desk.engine, lambda machine: machine.take_orders())
        order = desk.orders[T0]
        assert order is not None
        desk.orders[T0] = order._replace(offset=order.offset + 3)
    stream = desk.streams[0]
    pairs = [(message.offset, next(stream).offset) for message in stream if message.offset < 8]
    assert pairs == [(0, 1), (2, 3), (4, 5), (6, 7)]
