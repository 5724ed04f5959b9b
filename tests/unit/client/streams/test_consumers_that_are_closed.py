"""What a consumer refuses before it opens a connection or a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Consumer, aio
from ottla.errors import ConsumerClosed
from ottla.runtime.event_loop import run

QUERIES: list[Callable[[Any], Any]] = [
    lambda consumer: consumer.topics(),
    lambda consumer: consumer.partitions_for("t"),
    lambda consumer: consumer.beginning_offsets([("t", 0)]),
    lambda consumer: consumer.end_offsets([("t", 0)]),
    lambda consumer: consumer.end_offsets(),
    lambda consumer: consumer.offsets_for_times({("t", 0): 1}),
    lambda consumer: consumer.committed([("t", 0)]),
    lambda consumer: consumer.lag(),
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_closed_consumer_refuses_queries(query: Callable[[Any], Any]) -> None:
    consumer = Consumer[Any, Any]("localhost:1", group="g")
    consumer.close()
    with pytest.raises(ConsumerClosed):
        query(consumer)

    async def main() -> None:
        of_aio = aio.Consumer[Any, Any]("localhost:1", group="g")
        await of_aio.close()
        with pytest.raises(ConsumerClosed):
            await query(of_aio)

    run(main())


def test_an_aio_consumer_outside_a_loop_joins_no_group() -> None:
    consumer = aio.Consumer[Any, Any]("localhost:1", group="g")
    threads_before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no running event loop"):
        consumer.subscribe(["t"])
    assert set(threading.enumerate()) <= threads_before
    assert consumer.subscription == []
