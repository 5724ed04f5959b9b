"""A broker that stalls or is down: what a task makes of it, without Spark around it.  Time is no proof of loss."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.client.offsets import IsolationLevel
from ottla.spark.errors import ReadTimedOut
from ottla.spark.options.connection import Connection
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.range_reading import ReadTask, read_task
from ottla.testing import ControlledBroker, produce

CALL_TIMEOUT_MS = 2_000
# Far more than the time-outs above, far less than a call's default time, which was waited for whatever they said.
TOLD_WITHIN_S = 40
RECORDS_COUNT = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as running:
        yield running


@pytest.fixture
def task(broker: ControlledBroker, request: pytest.FixtureRequest) -> Iterator[ReadTask]:
    """Reads a topic's records in some twenty fetches; would go on after a loss."""
    with broker.namespace() as namespace:
        topic = namespace.topic("stalled")
        # Each batch is larger than a fetch, so each fetch brings one.
        for first in range(0, RECORDS_COUNT, 10):
            produce(topic, [bytes(10_000) + b"%d" % number for number in range(first, first + 10)])
        connection = Connection(broker.bootstrap, CALL_TIMEOUT_MS, CALL_TIMEOUT_MS)
        yield ReadTask(
            connection,
            (OffsetRange(str(topic), 0, 0, RECORDS_COUNT),),
            ("offset",),
            1 << 10,
            False,
            IsolationLevel.READ_UNCOMMITTED,
        )
        broker.restore()


def offsets_of(task: ReadTask) -> list[int]:
    return [offset for batch in read_task(task) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_a_broker_that_stalls_while_it_is_read_is_a_time_out_and_no_loss(
    broker: ControlledBroker, task: ReadTask, how: str
) -> None:
    batches = read_task(task)
    assert next(batches).num_rows > 0
    with broker.paused() if how == "paused" else broker.killed():
        began = time.monotonic()
        with pytest.raises(ReadTimedOut, match=rf"no records of .*-0 from offset \d+ on .* at {broker.bootstrap}"):
            for _ in batches:
                pass
        assert time.monotonic() - began < TOLD_WITHIN_S
    assert offsets_of(task) == list(range(RECORDS_COUNT)), "the task's next attempt reads all"


def test_a_broker_that_is_down_is_told_after_the_time_outs(broker: ControlledBroker, task: ReadTask) -> None:
    with broker.killed():
        began = time.monotonic()
        with pytest.raises(ReadTimedOut, match=broker.bootstrap):
            offsets_of(task)
        assert time.monotonic() - began < TOLD_WITHIN_S


def test_a_broker_that_is_back_in_time_is_read_on(broker: ControlledBroker, task: ReadTask) -> None:
    batches = read_task(task)
    seen = next(batches).column("offset").to_pylist()
    broker.restart()
    seen += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert seen == list(range(RECORDS_COUNT))
