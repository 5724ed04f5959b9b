from __future__ import annotations

from ottla.client.streams.consume_machine import FetchOrder
from ottla.client.streams.fetch_loop import PostponedOrders
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Retrying
from ottla.model.identifiers import TopicPartition
from ottla.testing.fake_clock import FakeClock

T0 = TopicPartition("t", 0)
ORDER = FetchOrder(1, 10, None)
LIMIT_MS = 60_000


def test_postponed_order_is_due_after_its_pause() -> None:
    clock = FakeClock()
    orders = PostponedOrders(Retrying(ClientOptions(), clock))
    orders.postpone(T0, ORDER)
    assert orders.take_due() == {}
    pause_ms = orders.wait_ms(LIMIT_MS)
    assert 0 < pause_ms < LIMIT_MS
    clock.advance(round(pause_ms) + 1)
    assert orders.take_due() == {T0: ORDER}
    assert (orders.take_due(), orders.wait_ms(LIMIT_MS)) == ({}, LIMIT_MS)


def test_order_that_has_become_due_while_others_were_tried_is_not_waited_with() -> None:
    clock = FakeClock()
    orders = PostponedOrders(Retrying(ClientOptions(), clock))
    orders.postpone(T0, ORDER)
    assert orders.take_due() == {}
    clock.advance(LIMIT_MS)
    assert orders.wait_ms(LIMIT_MS) == 0


def test_order_that_is_dropped_is_never_due() -> None:
    clock = FakeClock()
    orders = PostponedOrders(Retrying(ClientOptions(), clock))
    orders.postpone(T0, ORDER)
    orders.drop(T0)
    clock.advance(LIMIT_MS)
    assert (orders.take_due(), orders.wait_ms(LIMIT_MS)) == ({}, LIMIT_MS)
