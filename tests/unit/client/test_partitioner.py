from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.partitioner import murmur2, partition_of_key


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


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_partition_of_key_is_one_of_the_partitions(key: bytes, partitions_count: int) -> None:
    assert 0 <= partition_of_key(key, partitions_count) < partitions_count


def test_partition_of_key_spreads_keys() -> None:
    counts = Counter(partition_of_key(b"user-%d" % number, 8) for number in range(8000))
    assert min(counts.values()) > 800
