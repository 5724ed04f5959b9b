"""Keys and values alone, beside what the full reader makes of the same batch."""

from __future__ import annotations

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import decode_batch, key_values

PAIRS = [(b"k", b"v"), (None, b"x" * 300), (b"", None), (b"key" * 100, b"")]


def batch_of(*, codec: Codec = Codec.NONE, is_control: bool = False) -> bytearray:
    builder = BatchBuilder()
    for number, (key, value) in enumerate(PAIRS):
        builder.append(1_000 * number, key, value, (("h", b"1"),), offset_delta=3 * number)
    return builder.build(codec=codec, is_control=is_control)


@pytest.mark.parametrize("codec", Codec)
def test_keys_and_values_are_those_of_the_full_reader(codec: Codec) -> None:
    batch = memoryview(batch_of(codec=codec))
    assert list(key_values(batch)) == [(each.key, each.value) for each in decode_batch(batch)] == PAIRS


def test_control_batch_has_none() -> None:
    assert list(key_values(memoryview(batch_of(is_control=True)))) == []


def test_every_cut_and_every_turned_byte_is_refused_or_read_as_the_full_reader_does() -> None:
    whole = bytes(batch_of())
    for cut in range(len(whole)):
        with pytest.raises(CorruptBatch):
            list(key_values(memoryview(whole[:cut])))
    for at in range(BATCH_OVERHEAD_BYTES, len(whole)):
        turned = bytearray(whole)
        turned[at] ^= 0xFF
        with pytest.raises(CorruptBatch):
            list(key_values(memoryview(turned)))
