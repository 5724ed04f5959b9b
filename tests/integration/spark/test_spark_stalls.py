"""How a read task reacts to a broker that stalls or is down, without Spark.  A time-out does not prove a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.client.fetching.offsets import IsolationLevel
from ottla.spark.errors import ReadTimedOut
from ottla.spark.options.connection import Connection
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.range_reading import ReadTask, read_task
from ottla.testing import ControlledBroker, produce

# Enough for the fetches before the stall on a busy machine; that the times given are kept, and no longer ones,
# tests/unit/spark/source shows with a fake clock.
STALL_TIMEOUT_MS = 10_000
RECORDS_COUNT = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as running:
        yield running


@pytest.fixture
def task(broker: ControlledBroker, request: pytest.FixtureRequest) -> Iterator[ReadTask]:
    """Reads a topic's records in some twenty fetches, with the default times; it would continue after a loss."""
    with broker.namespace() as namespace:
        topic = namespace.topic("stalled")
        # Each batch is larger than a fetch, so each fetch brings one.
        for first in range(0, RECORDS_COUNT, 10):
            produce(topic, [bytes(10_000) + b"%d" % number for number in range(first, first + 10)])
        yield ReadTask(
            Connection(broker.bootstrap),
            (OffsetRange(str(topic), 0, 0, RECORDS_COUNT),),
            ("offset",),
            1 << 10,
            False,
            IsolationLevel.READ_UNCOMMITTED,
        )
        broker.restore()


def impatient(task: ReadTask, timeout_ms: int = STALL_TIMEOUT_MS) -> ReadTask:
    """The same task; nothing may take longer than this."""
    return replace(task, connection=Connection(task.connection.bootstrap, timeout_ms, timeout_ms))


def offsets_of(task: ReadTask) -> list[int]:
    return [offset for batch in read_task(task) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_a_broker_that_stalls_while_it_is_read_is_a_time_out_and_no_loss(
    broker: ControlledBroker, task: ReadTask, how: str
) -> None:
    batches = read_task(impatient(task))
    assert next(batches).num_rows > 0
    named = rf"no records of .*-0 from offset \d+ on .* at {broker.bootstrap}"
    stalled = broker.paused() if how == "paused" else broker.killed()
    with stalled, pytest.raises(ReadTimedOut, match=named):
        for _ in batches:
            pass
    assert offsets_of(task) == list(range(RECORDS_COUNT)), "the task's next attempt reads all"


def test_a_broker_that_is_down_is_reported_after_the_time_outs(broker: ControlledBroker, task: ReadTask) -> None:
    with broker.killed(), pytest.raises(ReadTimedOut, match=broker.bootstrap):
        offsets_of(impatient(task, 2_000))


def test_reading_continues_when_the_broker_is_back_in_time(broker: ControlledBroker, task: ReadTask) -> None:
    batches = read_task(task)
    seen = next(batches).column("offset").to_pylist()
    broker.restart()
    seen += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert seen == list(range(RECORDS_COUNT))
