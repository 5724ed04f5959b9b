from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.lost_offsets import (
    REASON_LENGTH_MAX,
    UNKNOWN_END,
    LostOffsets,
    LostRange,
    entry_from_json,
    entry_key,
    entry_to_json,
)
from ottla.model.errors import WireError
from ottla.model.identifiers import uuid_to_text

ENTRY = LostOffsets(LostRange("clicks", UUID(int=1000), 3, 10, 20, "deleted"), "team-a", 1_000)
lost_ranges = st.builds(
    lambda topic, id_, partition, first, count, reason: LostRange(
        topic, UUID(int=id_), partition, first, UNKNOWN_END if count == 0 else first + count, reason
    ),
    st.from_regex(r"[a-z]{1,9}", fullmatch=True),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**62 - 1),
    st.text(max_size=REASON_LENGTH_MAX).filter(str.isprintable),
)


@given(st.builds(LostOffsets, lost_ranges, st.text(max_size=20).filter(str.isprintable), st.integers(0, 2**62)))
def test_an_entry_is_read_as_it_was_written(entry: LostOffsets) -> None:
    assert entry_from_json(entry_to_json(entry)) == entry


def test_an_entry_looks_like_this() -> None:
    assert entry_key(ENTRY.lost) == f"{uuid_to_text(UUID(int=1000))}:3".encode()
    assert json.loads(entry_to_json(ENTRY)) == {
        "topic": "clicks",
        "topic_id": uuid_to_text(UUID(int=1000)),
        "partition": 3,
        "first_offset": 10,
        "end_offset": 20,
        "reason": "deleted",
        "reader": "team-a",
        "seen_ms": 1000,
    }
    assert str(ENTRY.lost) == "offsets 10 to 20 (exclusive) of clicks-3 are gone: deleted"


def test_entries_of_two_attempts_are_the_same_loss() -> None:
    later = LostOffsets(ENTRY.lost, ENTRY.reader, 2_000)
    assert later.identity == ENTRY.identity
    assert LostOffsets(ENTRY.lost, "team-b", 1_000).identity != ENTRY.identity


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": 5},
        {"topic": "no/topic"},
        {"topic_id": "short"},
        {"partition": -1},
        {"partition": True},
        {"first_offset": -1},
        {"end_offset": 10},
        {"end_offset": -2},
        {"reader": None},
        {"seen_ms": 1.5},
    ],
)
def test_an_entry_with_something_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="an entry of lost offsets"):
        entry_from_json(json.dumps(json.loads(entry_to_json(ENTRY)) | wrong).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 5_000, b" " * 20_000], ids=range(5))
def test_bytes_that_are_no_entry_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="an entry of lost offsets"):
        entry_from_json(data)
