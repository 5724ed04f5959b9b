"""The newest offsets of keys in bounded memory."""

from __future__ import annotations

import random

from ottla.storage.compaction.cleaner import ENTRY_BYTES, OffsetMap


def test_newest_offset_of_each_key_is_found() -> None:
    rng = random.Random(3)
    offsets = OffsetMap(1_000 * ENTRY_BYTES)
    known: dict[bytes, int] = {}
    keys = [rng.randbytes(rng.randrange(40)) for _ in range(500)]
    for offset in range(3_000):
        key = rng.choice(keys)
        assert offsets.put(key, offset)
        known[key] = offset
    assert {key: offsets.newest(key) for key in known} == known
    assert offsets.entries_count == len(known)
    assert offsets.newest(b"never put") == -1


def test_short_keys_that_differ_by_zeros_are_not_taken_for_each_other() -> None:
    offsets = OffsetMap(100 * ENTRY_BYTES)
    keys = [bytes(length) for length in range(20)]
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
    assert [offsets.newest(key) for key in keys] == list(range(20))


def test_full_map_takes_no_new_key_but_newer_offsets_of_known_ones() -> None:
    offsets = OffsetMap(8 * ENTRY_BYTES)
    taken = [number for number in range(20) if offsets.put(b"%d" % number, number)]
    assert taken == list(range(6))
    assert offsets.put(b"3", 99)
    assert offsets.newest(b"3") == 99
    assert offsets.newest(b"15") == -1


def test_memory_has_the_requested_size() -> None:
    assert len(OffsetMap(1024 * 1024)._table) <= 1024 * 1024
