"""Ids in Kafka's 22 characters."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.identifiers import RESERVED_UUIDS, uuid_from_text, uuid_to_text


@given(st.uuids())
def test_id_reads_back_from_its_text(value: UUID) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


def test_text_is_kafkas() -> None:
    # Kafka's Uuid.ZERO_UUID and Uuid.ONE_UUID in its own text form.
    assert uuid_to_text(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert {UUID(int=0), UUID(int=1)} <= RESERVED_UUIDS


@pytest.mark.parametrize("text", ["", "short", "A" * 23, "A" * 21 + "=", "A" * 21 + "R", "+" * 21 + "A", "é" * 22])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)
