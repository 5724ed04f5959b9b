"""Spark shows its user what Python's traceback says."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.client.wire.errors import CallTimedOut
from ottla.model.errors import OttlaError
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.options.write_options import parse_write_options
from ottla.spark.sink.at_least_once import BatchSink
from ottla.spark.source.batch_reader import BatchReader, TaskPartition
from ottla.spark.source.data_source import OttlaDataSource
from ottla.spark.source.range_reading import task_of
from ottla.spark.source.stream_reader import StreamReader

OPTIONS = {"kafka.bootstrap.servers": "far:1", "subscribe": "t"}
REASON = CallTimedOut("METADATA did not succeed in time: cannot connect to far:1", hint="is the address right?")


def batch() -> BatchReader:
    return BatchReader(parse_read_options(OPTIONS, is_stream=False), ("value",))


def stream() -> StreamReader:
    return StreamReader(parse_read_options(OPTIONS, is_stream=True), ("value",))


def sink() -> BatchSink:
    options = {"kafka.bootstrap.servers": "far:1", "topic": "t"}
    return BatchSink(parse_write_options(options, {"value": "binary"}, overwrites=False))


@pytest.fixture(autouse=True)
def wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise REASON from OSError("Connection refused")

    monkeypatch.setattr("ottla.client.wire.cluster.Cluster.refresh", fails)
    monkeypatch.setattr("ottla.spark.source.range_reading.open_cluster", fails)
    monkeypatch.setattr("ottla.spark.sink.at_least_once.open_cluster", fails)


@pytest.mark.parametrize(
    "call",
    [
        lambda: batch().partitions(),
        lambda: list(batch().read(TaskPartition(task_of(parse_read_options(OPTIONS, is_stream=False), (), ())))),
        lambda: stream().latestOffset(stream().initialOffset(), stream().getDefaultReadLimit()),
        lambda: stream().prepareForTriggerAvailableNow(),
        lambda: sink().write(iter(())),
    ],
    ids=["batch", "task", "stream", "available-now", "sink"],
)
def test_error_is_its_reason_and_what_to_do(call: Callable[[], object]) -> None:
    with pytest.raises(OttlaError) as caught:
        call()
    text = "".join(traceback.format_exception(caught.value))
    assert text.endswith(f"CallTimedOut: {REASON}\nhint: is the address right?\n")
    # That of this test, of Spark's call, and of the line that raises.
    assert text.count("  File ") <= 4
    assert "client/" not in text
    assert "Connection refused" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the option 'kafka.bootstrap.servers' is missing"),
        ({"kafka.bootstrap.servers": "http://far:1", "subscribe": "t"}, "is a URL"),
        ({**OPTIONS, "startingOffset": "latest"}, "did you mean 'startingOffsets'?"),
    ],
)
def test_option_that_is_wrong_comes_without_our_frames(options: dict[str, str], message: str) -> None:
    with pytest.raises(SparkOptionError, match=re.escape(message)) as caught:
        OttlaDataSource(options)
    assert "options/" not in "".join(traceback.format_exception(caught.value))


def test_option_that_only_a_stream_refuses_comes_without_our_frames() -> None:
    source = OttlaDataSource({**OPTIONS, "endingOffsets": "latest"})
    with pytest.raises(SparkOptionError) as caught:
        source.streamReader(StructType([StructField("value", BinaryType())]))
    assert "options/" not in "".join(traceback.format_exception(caught.value))


def test_reader_can_still_be_sent_to_a_planner() -> None:
    assert isinstance(pickle.loads(pickle.dumps(batch())), BatchReader)
