from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.client.producing.produce_requests import ACKS_LEADER
from ottla.client.producing.settings import ProducerOptions
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import stamp_producer
from ottla.records.compression import Codec
from ottla.records.record import Record, decode_batch
from ottla.spark.errors import UnencodableColumn
from ottla.spark.options.connection import Connection
from ottla.spark.options.write_options import WriteOptions
from ottla.spark.sink.row_encoder import RowEncoder, gathered
from ottla.testing.fake_clock import FakeClock

pytestmark = pytest.mark.usefixtures("form")


def encoder(
    topic: str | None = "t", partitions_count: int = 3, batch_bytes: int = 1 << 20, **wishes: bool
) -> RowEncoder:
    options = WriteOptions(
        Connection("localhost:9092"),
        topic,
        Codec.NONE,
        batch_bytes,
        wishes.get("keeps", False),
        wishes.get("ignores_keys", False),
    )
    return RowEncoder(options, lambda _: partitions_count, 0, FakeClock(now_ms=5_000))


def rows(columns: dict[str, pa.Array]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict(columns)]


def stored(encoder: RowEncoder, batches: list[pa.RecordBatch]) -> dict[TopicPartition, list[Record]]:
    """What a broker would hold."""
    logs: dict[TopicPartition, list[Record]] = {}
    for encoded in encoder.encode(batches):
        stamp_producer(encoded.batch, producer_id=7, producer_epoch=0, base_sequence=0)
        records = decode_batch(memoryview(encoded.batch))
        assert len(records) == encoded.records_count
        logs.setdefault(encoded.partition, []).extend(records)
    return logs


def values(logs: dict[TopicPartition, list[Record]]) -> dict[tuple[str, int], list[bytes | None]]:
    return {(place.topic, place.partition): [record.value for record in records] for place, records in logs.items()}


def test_rows_go_where_their_partition_column_says_and_keep_their_order() -> None:
    batches = rows({"value": pa.array(["a", "b", "c", "d"]), "partition": pa.array([2, 0, 2, 0], pa.int32())})
    assert values(stored(encoder(), batches)) == {("t", 0): [b"b", b"d"], ("t", 2): [b"a", b"c"]}


def test_a_null_partition_leaves_the_choice_to_the_key() -> None:
    keys = pa.array([b"abc", b"abc"])
    chosen = stored(encoder(), rows({"value": pa.array(["a", "b"]), "key": keys}))
    given = stored(
        encoder(), rows({"value": pa.array(["a", "b"]), "key": keys, "partition": pa.array([None, 1], pa.int32())})
    )
    assert [record.value for record in next(iter(chosen.values()))] == [b"a", b"b"]
    assert sum(len(records) for records in given.values()) == 2
    assert b"b" in values(given)["t", 1]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_the_topic_has_not_is_refused(partition: int) -> None:
    batches = rows({"value": pa.array(["a"]), "partition": pa.array([partition], pa.int32())})
    with pytest.raises(UnencodableColumn, match="0 to 2"):
        stored(encoder(), batches)


def test_each_row_goes_to_the_topic_that_it_names() -> None:
    batches = rows({"value": pa.array(["1", "2", "3"]), "topic": pa.array(["a", "b", "a"])})
    assert values(stored(encoder(None, 1), batches)) == {("a", 0): [b"1", b"3"], ("b", 0): [b"2"]}


def test_a_row_without_topic_is_refused() -> None:
    with pytest.raises(UnencodableColumn, match="'topic' is null"):
        stored(encoder(None), rows({"value": pa.array(["1", "2"]), "topic": pa.array(["a", None])}))


def test_records_carry_the_time_of_writing_unless_the_timestamp_column_is_requested() -> None:
    batches = rows({"value": pa.array(["a", "b"]), "timestamp": pa.array([7_000, None], pa.timestamp("us", tz="UTC"))})

    def times(encoder: RowEncoder) -> list[int]:
        return [record.timestamp_ms for records in stored(encoder, batches).values() for record in records]

    assert times(encoder(partitions_count=1)) == [5_000, 5_000]
    assert times(encoder(partitions_count=1, keeps=True)) == [7, 5_000]


def test_rows_without_a_key_fill_one_batch_after_another_over_all_partitions() -> None:
    batches = rows({"value": pa.array(["x" * 900] * 30)})
    encoded = list(encoder(batch_bytes=10_000).encode(batches))
    assert {batch.partition.partition for batch in encoded} == {0, 1, 2}
    assert all(len(batch.batch) <= 10_000 for batch in encoded)
    assert len(encoded) <= 6


def test_the_next_rows_without_a_key_continue_with_the_next_partition() -> None:
    shared = encoder()
    first, second = (next(iter(stored(shared, rows({"value": pa.array(["x"])})))).partition for _ in range(2))
    assert (first, second) == (0, 1)


def test_keys_that_are_ignored_do_not_choose_the_partition() -> None:
    column = {"key": pa.array([b"same"] * 30, pa.binary()), "value": pa.array([b"x" * 400] * 30, pa.binary())}
    assert len(stored(encoder(batch_bytes=1024), rows(column))) == 1
    logs = stored(encoder(batch_bytes=1024, ignores_keys=True), rows(column))
    assert len(logs) == 3
    assert {record.key for records in logs.values() for record in records} == {b"same"}


def test_batches_of_spark_are_put_together_and_empty_ones_left_out() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": pa.array(["x" * 100] * count)}) for count in (10, 0, 10, 10)]
    assert [table.num_rows for table in gathered(batches, 1500)] == [20, 10]


def test_batch_of_a_producer_without_numbers_has_its_checksum() -> None:
    options = WriteOptions(Connection("localhost:9092"), "t", producer=ProducerOptions(acks=ACKS_LEADER))
    rows_encoder = RowEncoder(options, lambda _: 1, 0, FakeClock(now_ms=5_000))
    (encoded,) = rows_encoder.encode(rows({"value": pa.array(["a"])}))
    assert [record.value for record in decode_batch(memoryview(encoded.batch))] == [b"a"]


def test_rows_of_many_topics_and_spark_batches_keep_their_order() -> None:
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "value": pa.array([f"{batch}-{row}" for row in range(50)]),
                "topic": pa.array([f"t{row % 7}" for row in range(50)]),
                "partition": pa.array([row % 3 for row in range(50)], pa.int32()),
            }
        )
        for batch in range(4)
    ]
    wanted: dict[tuple[str, int], list[bytes | None]] = {}
    for batch in range(4):
        for row in range(50):
            wanted.setdefault((f"t{row % 7}", row % 3), []).append(f"{batch}-{row}".encode())
    assert values(stored(encoder(None), batches)) == wanted


def test_null_values_and_typed_nulls_are_tombstones() -> None:
    assert values(stored(encoder(partitions_count=1), rows({"value": pa.nulls(2), "key": pa.array(["k", "l"])}))) == {
        ("t", 0): [None, None]
    }
