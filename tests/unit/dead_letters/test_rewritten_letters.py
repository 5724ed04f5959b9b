"""Which messages of a dead-letter topic an erasure writes again."""

from __future__ import annotations

from uuid import UUID

from ottla.client.fetching.messages import Message
from ottla.dead_letters import DeadLetter, Origin
from ottla.dead_letters.erasing import rewritten

ORIGIN = Origin("cluster", "orders", UUID(int=700), partition=0, offset=41, timestamp_ms=1_307_836_800_000)
LETTER = DeadLetter(ORIGIN, b"8", b"{", (), "ValueError", "bad", "BOOK")
STORED: Message = Message("orders.dead-letter", 0, 0, 5, LETTER.key, LETTER.value, LETTER.record_headers)
OTHER: Message = Message("orders.dead-letter", 0, 1, 5, b"8", b"{", (("own", b"1"),))


def test_letter_that_a_killed_erasure_has_written_again_stays_once() -> None:
    later = STORED._replace(timestamp_ms=6)
    messages = [STORED, STORED._replace(key=b"7"), later, STORED._replace(offset=3)]
    assert list(rewritten(messages, {b"7"})) == [STORED, later]


def test_equal_messages_that_are_no_letters_all_stay() -> None:
    messages = [OTHER, OTHER._replace(key=b"7"), OTHER._replace(offset=3)]
    assert list(rewritten(messages, {b"7"})) == [OTHER, messages[2]]
