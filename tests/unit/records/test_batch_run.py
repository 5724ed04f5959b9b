from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.records.batch_run import BatchRun, survey
from ottla.records.builder import build_batch
from ottla.records.errors import CorruptBatch
from ottla.records.record import Record, split_batches

ONE = Record(0, 1000, b"k", b"v")


def test_survey_finds_the_last_whole_batch_wherever_the_run_is_cut() -> None:
    first, second = build_batch([ONE, ONE]), build_batch([ONE], base_offset=2)
    data = memoryview(bytes(first + second))
    whole = len(first)
    for cut in range(len(data) + 1):
        run = survey(data[:cut])
        assert run.end == sum(len(batch) for batch in split_batches(data[:cut]))
        if cut < 12:
            assert run == BatchRun(0, -1, 0, 0)
        elif cut < whole:
            assert run == BatchRun(0, -1, 0, whole)
        elif cut < whole + 12:
            assert run == BatchRun(whole, 2, 1, 0)
        elif cut < len(data):
            assert run == BatchRun(whole, 2, 1, len(second))
        else:
            assert run == BatchRun(len(data), 3, 2, 0)


def test_survey_refuses_offsets_that_go_back() -> None:
    batch = build_batch([ONE, ONE], base_offset=5)
    with pytest.raises(CorruptBatch, match="follows offset 6"):
        survey(memoryview(bytes(batch + batch)))


def test_survey_looks_at_checksums_only_when_told_to() -> None:
    batch = build_batch([ONE])
    batch[-1] ^= 1
    assert survey(memoryview(batch)).batches_count == 1
    with pytest.raises(CorruptBatch, match="checksum"):
        survey(memoryview(batch), check_crc=True)


@given(st.binary(max_size=300), st.binary(max_size=40), st.integers(0, 60))
def test_survey_meets_any_bytes_with_a_wire_error_only(junk: bytes, patch: bytes, position: int) -> None:
    batch = build_batch([ONE, ONE, ONE])
    batch[position : position + len(patch)] = patch
    for data in (junk, bytes(batch), bytes(batch) + junk):
        try:
            run = survey(memoryview(data), check_crc=True)
        except WireError:
            continue
        assert 0 <= run.end <= len(data)
