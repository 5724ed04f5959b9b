"""Control batches that end transactions."""

from __future__ import annotations

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.end_marker import EndMarker, build_end_marker, read_end_marker
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES, read_header


@pytest.mark.parametrize(("commits", "kind"), [(False, "00"), (True, "01")])
def test_marker_has_kafkas_bytes_and_is_read_back(commits: bool, kind: str) -> None:
    marker = EndMarker(commits, 7)
    batch = build_end_marker(marker, 4000, 5, 1_700_000_000_000)
    header = read_header(batch)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x30, 4000, 5, -1)
    assert (header.records_count, header.last_offset_delta) == (1, 0)
    assert batch[BATCH_OVERHEAD_BYTES:] == bytes.fromhex(f"20 00 00 00 08 000000{kind} 0c 000000000007 00")
    assert read_end_marker(memoryview(batch)) == marker


def control_batch(key: bytes, value: bytes | None) -> memoryview:
    builder = BatchBuilder()
    builder.append(0, key, value)
    return memoryview(builder.build(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True))


def test_control_record_of_another_kind_is_no_marker() -> None:
    assert read_end_marker(control_batch(b"\x00\x00\x00\x02", b"")) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\x00", b""), (b"\x00\x00\x00\x01", None), (b"\x00\x00\x00\x00", b"\x00")]
)
def test_damaged_marker_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_end_marker(control_batch(key, value))
