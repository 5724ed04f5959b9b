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


@pytest.mark.parametrize(
    ("at", "damage"),
    [(0, b"\xff" * 8), (0, bytes(8)), (8, bytes(4)), (8, b"\xff" * 4), (16, b"\x01"), (23, b"\xff" * 4)],
    ids=["negative offset", "offset goes back", "no length", "negative length", "old format", "negative delta"],
)
def test_damaged_head_ends_the_run_and_is_an_error_where_a_run_starts_with_it(at: int, damage: bytes) -> None:
    whole = build_batch([ONE, ONE], base_offset=5)
    damaged = build_batch([ONE], base_offset=7)
    damaged[at : at + len(damage)] = damage
    later = build_batch([ONE], base_offset=8)
    data = memoryview(bytes(whole + damaged + later))
    assert survey(data) == BatchRun(len(whole), 7, 1, 0)
    if damage != bytes(8):
        with pytest.raises(CorruptBatch):
            survey(data[len(whole) :])


def test_survey_looks_at_checksums_only_when_it_should() -> None:
    whole, batch = build_batch([ONE]), build_batch([ONE], base_offset=1)
    batch[-1] ^= 1
    assert survey(memoryview(batch)).batches_count == 1
    with pytest.raises(CorruptBatch, match="checksum"):
        survey(memoryview(batch), check_crc=True)
    assert survey(memoryview(bytes(whole + batch)), check_crc=True) == BatchRun(len(whole), 1, 1, 0)


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
