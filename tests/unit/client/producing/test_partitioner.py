from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producing.partitioner import murmur2, murmur2_of_many, partition_of_key, partitions_of_keys


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the test of Kafka's Java client (UtilsTest.testMurmur2), as signed 32-bit numbers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.integers(1, 40).flatmap(lambda length: st.lists(st.binary(min_size=length, max_size=length), min_size=1)))
def test_keys_of_one_length_have_the_same_hashes_together_as_alone(keys: list[bytes]) -> None:
    assert murmur2_of_many(keys) == [murmur2(key) for key in keys]


def test_lanes_of_large_numbers_do_not_reach_into_each_other() -> None:
    keys = [bytes([byte]) * 16 for byte in (0xFF, 0x00, 0x80, 0x7F, 0xFF, 0xFF)] * 80
    assert murmur2_of_many(keys) == [murmur2(key) for key in keys]


@given(st.lists(st.binary(max_size=12) | st.binary(min_size=120, max_size=140), max_size=100), st.integers(1, 50))
def test_set_of_keys_has_the_partitions_of_its_keys(keys: list[bytes], partitions_count: int) -> None:
    expected = [(murmur2(key) & 0x7FFFFFFF) % partitions_count for key in keys]
    assert partitions_of_keys(keys, partitions_count) == expected
    assert [partition_of_key(key, partitions_count) for key in keys] == expected


def test_more_keys_than_are_kept_have_their_partitions() -> None:
    keys = [b"user-%d" % number for number in range(20_000)]
    expected = [(murmur2(key) & 0x7FFFFFFF) % 12 for key in keys]
    assert partitions_of_keys(keys, 12) == expected
    assert [partition_of_key(key, 12) for key in keys] == expected


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_partition_of_key_is_one_of_the_partitions(key: bytes, partitions_count: int) -> None:
    assert 0 <= partition_of_key(key, partitions_count) < partitions_count


def test_partition_of_key_spreads_keys() -> None:
    counts = Counter(partition_of_key(b"user-%d" % number, 8) for number in range(8000))
    assert min(counts.values()) > 800
