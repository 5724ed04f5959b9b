from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.arrow.encoder import RecordRows
from ottla.spark.arrow.key_hashes import LONG_KEY_BYTES, NO_KEY
from ottla.spark.arrow.record_columns import RecordColumns
from ottla.spark.arrow.row_groups import by_partition, partitions_of
from ottla.spark.arrow.varint_columns import Ints

pytestmark = pytest.mark.usefixtures("form")

# From the tests of Kafka's Java client (UtilsTest.testMurmur2): any port of the hash is held to these.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def hash_column(keys: pa.Array) -> Ints:
    return RecordRows([RecordColumns(keys, keys, None, np.zeros(len(keys), np.int64))]).key_hashes()


def hash_of(keys: list[bytes | None]) -> list[int]:
    return [int(number) for number in hash_column(pa.array(keys, pa.binary()))]


def test_hashes_are_those_of_kafkas_java_client() -> None:
    assert hash_of(list(KNOWN)) == [number & 0xFFFFFFFF for number in KNOWN.values()]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * (LONG_KEY_BYTES + 3))), max_size=20))
def test_a_column_hashes_like_its_keys_one_by_one(keys: list[bytes | None]) -> None:
    assert hash_of(keys) == [NO_KEY if key is None else hash_of([key])[0] for key in keys]


def test_long_keys_hash_as_other_clients_hash_them() -> None:
    aiokafka = pytest.importorskip("aiokafka.partitioner", reason="aiokafka is not installed")
    for size in (0, 1, LONG_KEY_BYTES - 1, LONG_KEY_BYTES, LONG_KEY_BYTES + 1, LONG_KEY_BYTES + 2, 5000):
        key = bytes(index * 7 % 256 for index in range(size))
        assert hash_of([key])[0] == aiokafka.murmur2(key) & 0xFFFFFFFF


def test_a_slice_of_a_column_hashes_only_its_rows() -> None:
    keys = pa.array([b"a", None, b"foobar", b"abc"], pa.binary())
    assert hash_column(keys[2:]).tolist() == [KNOWN[b"foobar"] & 0xFFFFFFFF, KNOWN[b"abc"]]


def test_rows_without_a_key_go_to_one_partition_after_another_in_runs() -> None:
    hashes = np.full(10, NO_KEY, np.int64)
    sizes = np.full(10, 30, np.int64)
    assert partitions_of(hashes, sizes, 3, 1, 90).tolist() == [1, 1, 2, 2, 2, 0, 0, 0, 1, 1]


def test_keyed_rows_do_not_move_the_runs() -> None:
    hashes = hash_column(pa.array([None, b"abc", None], pa.binary()))
    partitions = partitions_of(hashes, np.full(3, 50, np.int64), 4, 0, 1000)
    assert partitions.tolist() == [0, 479470107 % 4, 0]


@given(st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=3)), st.integers(1, 500)), max_size=30))
def test_partitions_are_the_same_as_one_row_after_another_gets_them(rows: list[tuple[bytes | None, int]]) -> None:
    hashes = hash_column(pa.array([key for key, _ in rows], pa.binary()))
    expected, used = [], 0
    for (key, size), key_hash in zip(rows, hashes.tolist(), strict=True):
        used += size if key is None else 0
        expected.append((key_hash & 0x7FFFFFFF if key is not None else 5 + used // 200) % 7)
    sizes = np.array([size for _, size in rows], np.int64)
    assert partitions_of(hashes, sizes, 7, 5, 200).tolist() == expected


@given(st.lists(st.integers(0, 9), max_size=40))
def test_rows_of_a_partition_are_together_and_in_their_order(partitions: list[int]) -> None:
    found = {number: rows.tolist() for number, rows in by_partition(np.array(partitions, np.int64), 10)}
    assert found == {
        number: [row for row, mine in enumerate(partitions) if mine == number] for number in sorted(set(partitions))
    }


def test_rows_of_a_topic_with_more_partitions_than_16_bits_have_are_grouped() -> None:
    partitions = np.array([70_000, 3, 70_000], np.int64)
    found = [(number, rows.tolist()) for number, rows in by_partition(partitions, 70_001)]
    assert found == [(3, [1]), (70_000, [0, 2])]
