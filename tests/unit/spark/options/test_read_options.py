from __future__ import annotations

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    from_dict,
    to_dict,
)
from ottla.spark.options.read_options import Assigned, TopicPattern, Topics, parse_read_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}


def problem(options: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(SparkOptionError) as caught:
        parse_read_options(options, is_stream=is_stream)
    return str(caught.value)


def test_batch_reads_everything_that_is_there_by_default() -> None:
    options = parse_read_options(BASE, is_stream=False)
    assert options.starting == AtOffset(EARLIEST)
    assert options.ending == AtOffset(LATEST)
    assert options.fails_on_data_loss


def test_stream_starts_at_the_latest_offset_by_default() -> None:
    assert parse_read_options(BASE, is_stream=True).starting == AtOffset(LATEST)


@pytest.mark.parametrize(
    "name", ["kafka.bootstrap.servers", "bootstrap.servers", "bootstrapServers", "BOOTSTRAPSERVERS"]
)
def test_bootstrap_has_three_names_in_any_case(name: str) -> None:
    options = parse_read_options({name: "a:1, b:2", "subscribe": "clicks"}, is_stream=False)
    assert options.connection.bootstrap == "a:1, b:2"


def test_subscriptions_take_topics_a_pattern_or_partitions() -> None:
    server = {"kafka.bootstrap.servers": "localhost:9092"}
    assert parse_read_options(server | {"subscribe": "b, a,b"}, is_stream=False).subscription == Topics(("b", "a"))
    assert parse_read_options(server | {"subscribePattern": "click.*"}, is_stream=False).subscription == TopicPattern(
        "click.*"
    )
    assert parse_read_options(server | {"assign": '{"t": [1, 0]}'}, is_stream=False).subscription == Assigned(
        (TopicPartition("t", 0), TopicPartition("t", 1))
    )


def test_offsets_come_as_words_json_or_timestamps() -> None:
    def starting(name: str, value: str) -> object:
        return parse_read_options(BASE | {name: value}, is_stream=False).starting

    assert starting("startingOffsets", "Earliest") == AtOffset(EARLIEST)
    assert starting("startingOffsets", '{"clicks": {"0": 5, "1": -2}}') == AtOffsets(
        "startingOffsets", {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): EARLIEST}
    )
    assert starting("startingTimestamp", "1000") == AtTimestamp("startingTimestamp", 1000)
    assert starting("startingOffsetsByTimestamp", '{"clicks": {"0": 7}}') == AtTimestamps(
        "startingOffsetsByTimestamp", {TopicPartition("clicks", 0): 7}
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "'subscribe'"),
        (BASE | {"bootstrap.servers": "b:1"}, "'bootstrap.servers' contradict"),
        ({"kafka.bootstrap.servers": "localhost:port", "subscribe": "t"}, "'kafka.bootstrap.servers'"),
        (BASE | {"assign": '{"t": [0]}'}, "'subscribe' and 'assign' contradict"),
        (BASE | {"subscribe": "bad/name"}, "bad/name"),
        (BASE | {"subscribe": " , "}, "'subscribe' names no topic"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "'subscribePattern'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t": 0}'}, "'assign'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t": [-1]}'}, "'assign'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "t"}, "'assign'"),
        (BASE | {"startingOffsets": "latest"}, "'startingOffsets' cannot be latest"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -1}}'}, "'startingOffsets' cannot have -1"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -3}}'}, "-3"),
        (BASE | {"startingOffsets": '{"clicks": {"0": true}}'}, "True"),
        (BASE | {"startingOffsets": '{"clicks": {"x": 1}}'}, "'x'"),
        (BASE | {"startingOffsets": '{"clicks": 1}'}, "'clicks' holds no partitions"),
        (BASE | {"startingOffsets": "{"}, "not JSON"),
        (BASE | {"startingOffsets": "newest"}, "'newest'"),
        (BASE | {"startingOffsets": "earliest", "startingTimestamp": "5"}, "'startingOffsets' and 'startingTimestamp'"),
        (BASE | {"startingTimestamp": "yesterday"}, "'startingTimestamp'"),
        (BASE | {"endingOffsets": "earliest"}, "'endingOffsets' cannot be earliest"),
        (BASE | {"endingOffsets": '{"clicks": {"0": -2}}'}, "'endingOffsets' cannot have -2"),
        (BASE | {"minPartitions": "0"}, "'minPartitions' is 0"),
        (BASE | {"minPartitions": "many"}, "'minPartitions' is 'many'"),
        (BASE | {"failOnDataLoss": "perhaps"}, "'failOnDataLoss' cannot be 'perhaps'"),
        (BASE | {"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' does not apply to a batch"),
        (BASE | {"includeHeaders": "1"}, "'includeHeaders' cannot be '1'"),
        (BASE | {"kafka.group.id": "g"}, "'kafka.group.id' is not offered"),
        (BASE | {"startingOfsets": "earliest"}, "'startingofsets' is unknown"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], named: str) -> None:
    assert named in problem(options)


def test_an_unknown_option_gets_the_nearest_name_as_hint() -> None:
    with pytest.raises(SparkOptionError) as caught:
        parse_read_options(BASE | {"startingOfsets": "earliest"}, is_stream=False)
    assert caught.value.hint == "did you mean 'startingOffsets'?"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5", "endingOffsetsByTimestamp": '{"clicks": {"0": 1}}'}
    assert name in problem(BASE | {name: value[name]}, is_stream=True)


def test_offsets_survive_the_checkpoint() -> None:
    offsets = {TopicPartition("b", 10): 7, TopicPartition("a", 0): 2**62, TopicPartition("b", 2): 0}
    nested = to_dict(offsets)
    assert nested == {"a": {"0": 2**62}, "b": {"2": 0, "10": 7}}
    assert from_dict(nested) == offsets
