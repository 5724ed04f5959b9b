from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER
from ottla.runtime.disk import File
from ottla.storage.segment.batch_scan import BatchScan
from tests.property.property_settings import examples_max
from tests.unit.storage.logs import batch_of
from tests.unit.storage.quick_disk import QuickDisk


def file_of(path: Path, content: bytes) -> File:
    (path / "batches").write_bytes(content)
    return QuickDisk().open(str(path / "batches"))


def stamped(base_offset: int, count: int = 1, value: bytes = b"v" * 50) -> bytes:
    batch = batch_of(count, value=value)
    batch[:8] = base_offset.to_bytes(8, "big")
    return bytes(batch)


BATCHES = [stamped(0), stamped(1, 3), stamped(4, 1, b"v" * 9_000), stamped(5)]


@pytest.mark.parametrize("chunk_bytes", [BATCH_OVERHEAD_BYTES, 100, 4_096, 10**6])
def test_a_scan_sees_every_batch_with_chunks_of_any_size(tmp_path: Path, chunk_bytes: int) -> None:
    content = b"".join(BATCHES)
    file = file_of(tmp_path, content)
    heads = BatchScan(file, 0, len(content), chunk_bytes)
    checked = BatchScan(file, 0, len(content), chunk_bytes)
    positions = [sum(len(batch) for batch in BATCHES[:number]) for number in range(4)]
    assert [(position, head[0]) for position, head in heads.heads()] == list(zip(positions, [0, 1, 4, 5], strict=True))
    assert [head[0] for head in checked.checked_heads()] == [0, 1, 4, 5]
    assert (heads.problem, checked.problem) == (None, None)
    assert heads.position == checked.position == len(content)


@pytest.mark.parametrize("cut", [1, 11, 60, 61, len(BATCHES[3]) - 1])
def test_a_scan_stops_before_a_batch_that_is_cut(tmp_path: Path, cut: int) -> None:
    whole = b"".join(BATCHES[:3])
    file = file_of(tmp_path, whole + BATCHES[3][:cut])
    for scan in (BatchScan(file, 0, len(whole) + cut), BatchScan(file, 0, len(whole) + cut, 100)):
        assert [head[0] for head in scan.checked_heads()] == [0, 1, 4]
        assert scan.position == len(whole)
        assert scan.problem is not None


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [(3, 1, "magic"), (1, 48, "shorter"), (1, -1, "shorter"), (1, 2**31 - 1, "longer"), (6, -1, "delta")],
)
def test_a_head_that_cannot_be_is_named(tmp_path: Path, field: int, value: int, problem: str) -> None:
    head = list(HEADER.unpack_from(BATCHES[1]))
    head[field] = value
    content = BATCHES[0] + HEADER.pack(*head) + BATCHES[1][BATCH_OVERHEAD_BYTES:]
    scan = BatchScan(file_of(tmp_path, content), 0, len(content))
    assert [found[0] for _, found in scan.heads()] == [0]
    assert scan.problem is not None
    assert problem in scan.problem
    assert scan.position == len(BATCHES[0])


@settings(max_examples=examples_max(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400), flips=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 255)), max_size=3))
def test_any_bytes_end_in_a_position_and_a_problem(
    tmp_path: Path, content: bytes, flips: list[tuple[int, int]]
) -> None:
    spoiled = bytearray(BATCHES[0] + BATCHES[1] + content)
    for position, bits in flips:
        if position < len(spoiled):
            spoiled[position] ^= bits
    file = file_of(tmp_path, bytes(spoiled))
    for scan, walk in (
        (s := BatchScan(file, 0, len(spoiled)), s.heads()),
        (s := BatchScan(file, 0, len(spoiled)), s.checked_heads()),
    ):
        count = sum(1 for _ in walk)
        assert 0 <= scan.position <= len(spoiled)
        assert (scan.problem is None) == (scan.position == len(spoiled))
        assert count * BATCH_OVERHEAD_BYTES <= scan.position
    file.close()
