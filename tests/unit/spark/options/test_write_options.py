from __future__ import annotations

import pytest

from ottla.records.compression import Codec
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.write_options import BATCH_BYTES_DEFAULT, ExactlyOnce, WriteOptions, parse_write_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "clicks"}

EXACTLY_ONCE = BASE | {"delivery": "exactly-once"}


def parse(options: dict[str, str], **columns: str) -> WriteOptions:
    return parse_write_options(options, columns or {"value": "binary"}, overwrites=False)


def test_a_topic_and_a_value_are_enough() -> None:
    options = parse(BASE)
    assert (options.topic, options.codec, options.batch_bytes_max) == ("clicks", Codec.NONE, BATCH_BYTES_DEFAULT)
    assert not options.keeps_timestamps


def test_a_writer_is_idempotent_and_waits_for_all_replicas_by_default() -> None:
    producer = parse(BASE).producer
    assert (producer.acks, producer.is_idempotent) == (-1, True)


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_are_honoured_without_idempotence(acks: int) -> None:
    producer = parse(BASE | {"kafka.acks": str(acks)}).producer
    assert (producer.acks, producer.is_idempotent) == (acks, False)


def test_a_producer_s_settings_are_honoured() -> None:
    options = parse(
        BASE
        | {
            "kafka.max.block.ms": "3000",
            "kafka.delivery.timeout.ms": "40000",
            "kafka.buffer.memory": "4000000",
            "kafka.max.request.size": "100000",
            "kafka.max.in.flight.requests.per.connection": "2",
            "kafka.partitioner.ignore.keys": "true",
            "kafka.linger.ms": "100",
        }
    )
    assert options.connection.client_options.call_timeout_ms == 3_000
    assert options.producer.delivery_timeout_ms == 40_000
    assert options.producer.buffer_bytes_max == 4_000_000
    assert (options.producer.request_bytes_max, options.batch_bytes_max) == (100_000, 100_000)
    assert options.producer.max_in_flight == 2
    assert options.ignores_keys


def test_columns_that_are_not_written_may_have_any_type() -> None:
    parse(BASE, value="string", timestamp="string", topic="int", colour="int")


def test_spark_s_own_options_are_passed_over() -> None:
    parse(BASE | {"checkpointLocation": "/somewhere"})


@pytest.mark.parametrize(
    ("options", "columns", "named"),
    [
        (BASE, {"key": "binary"}, "no column 'value'"),
        (BASE, {"value": "struct<a:int>"}, "'value' is struct<a:int>"),
        (BASE, {"value": "binary", "key": "int"}, "'key' is int"),
        (BASE, {"value": "binary", "partition": "bigint"}, "'partition' is bigint"),
        (BASE, {"value": "binary", "headers": "map<string,binary>"}, "'headers' is map"),
        (BASE | {"includeTimestamp": "true"}, {"value": "binary"}, "'includeTimestamp' needs"),
        (BASE | {"includeTimestamp": "true"}, {"value": "binary", "timestamp": "bigint"}, "'timestamp' is bigint"),
        (BASE | {"topic": "a b"}, {"value": "binary"}, "'a b'"),
        (BASE | {"kafka.acks": "2"}, {"value": "binary"}, "'kafka.acks'"),
        (BASE | {"kafka.acks": "1", "kafka.enable.idempotence": "true"}, {"value": "binary"}, "contradict each other"),
        (BASE | {"kafka.max.in.flight.requests.per.connection": "6"}, {"value": "binary"}, "at most 5"),
        (BASE | {"kafka.delivery.timeout.ms": "500"}, {"value": "binary"}, "cannot be less than"),
        (BASE | {"kafka.retries": "0"}, {"value": "binary"}, "'kafka.retries' is 0"),
        (BASE | {"kafka.partitioner.class": "a.B"}, {"value": "binary"}, "the column 'partition' overrules it"),
        (BASE | {"kafka.transactional.id": "x"}, {"value": "binary"}, "transactionalIdPrefix and the query's id"),
        (BASE | {"delivery": "twice"}, {"value": "binary"}, "'delivery' cannot be 'twice'"),
        (BASE | {"transactionalIdPrefix": "x-"}, {"value": "binary"}, "'transactionalIdPrefix' does not apply"),
        (BASE | {"kafka.transaction.timeout.ms": "1000"}, {"value": "binary"}, "give delivery=exactly-once, too"),
        (BASE | {"exactlyOnceFromBatch": "3"}, {"value": "binary"}, "'exactlyOnceFromBatch' does not apply"),
        (EXACTLY_ONCE | {"exactlyOnceFromBatch": "0"}, {"value": "binary"}, "'exactlyOnceFromBatch' is 0"),
        (EXACTLY_ONCE | {"kafka.acks": "1"}, {"value": "binary"}, "which needs 'kafka.acks' all"),
        (EXACTLY_ONCE | {"kafka.enable.idempotence": "false"}, {"value": "binary"}, "'kafka.enable.idempotence' true"),
        (EXACTLY_ONCE | {"transactionalIdPrefix": "a/b"}, {"value": "binary"}, "'transactionalIdPrefix': "),
        (BASE | {"kafka.compression.zstd.level": "9"}, {"value": "binary"}, "'kafka.compression.zstd.level' is not"),
        (BASE | {"kafka.compression.type": "brotli"}, {"value": "binary"}, "'brotli'"),
        (BASE | {"kafka.batch.size": "1"}, {"value": "binary"}, "'kafka.batch.size' is 1"),
        (BASE | {"subscribe": "t"}, {"value": "binary"}, "'subscribe' is unknown"),
    ],
)
def test_what_cannot_be_written_is_named(options: dict[str, str], columns: dict[str, str], named: str) -> None:
    with pytest.raises(SparkOptionError) as caught:
        parse_write_options(options, columns, overwrites=False)
    assert named in str(caught.value)


def test_a_write_is_at_least_once_by_default() -> None:
    assert parse(BASE).exactly_once is None
    assert parse(BASE | {"delivery": "at-least-once"}).exactly_once is None


def test_the_settings_of_an_exactly_once_stream_are_honoured() -> None:
    assert parse(EXACTLY_ONCE).exactly_once == ExactlyOnce("ottla-spark-", 60_000, None)
    chosen = {"transactionalIdPrefix": "team-", "kafka.transaction.timeout.ms": "9000", "exactlyOnceFromBatch": "12"}
    assert parse(EXACTLY_ONCE | chosen).exactly_once == ExactlyOnce("team-", 9_000, 12)


def test_overwriting_a_topic_is_refused() -> None:
    with pytest.raises(SparkOptionError, match='mode\\("append"\\)'):
        parse_write_options(BASE, {"value": "binary"}, overwrites=True)
