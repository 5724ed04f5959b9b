from __future__ import annotations

import json

import pytest

from ottla.audit.count import MESSAGE_BYTES_MAX, AuditMessage, from_json, key_bytes, to_json
from ottla.model.errors import WireError
from tests.unit.audit.samples import count, report


@pytest.mark.parametrize(
    "message", [count("broker", 7, late=2, seen_ms=9, start_ms=-600_000), report("producer", 5, ended=True)]
)
def test_message_comes_back_from_its_json(message: AuditMessage) -> None:
    assert from_json(to_json(message)) == message


def test_newer_messages_of_a_counter_have_the_key_of_the_older_one_and_others_do_not() -> None:
    assert key_bytes(count("broker", 7, sequence=1)) == key_bytes(count("broker", 9, sequence=2))
    others: list[AuditMessage] = [
        count("lake", 7),
        count("broker", 7, counter=2),
        count("broker", 7, start_ms=600_000),
        report("broker", 1),
    ]
    keys = {key_bytes(each) for each in [count("broker", 7), *others]}
    assert len(keys) == 5


def test_fields_that_are_not_known_are_left_alone() -> None:
    message = count("broker", 7)
    more = json.loads(to_json(message)) | {"host": "a"}
    assert from_json(json.dumps(more).encode()) == message


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"records": -1}, "records"),
        ({"records": True}, "records"),
        ({"records": 2**63}, "records"),
        ({"records": 1.5}, "records"),
        ({"late_records": 8}, "8 late records of 7"),
        ({"window_ms": 0}, "window_ms"),
        ({"window_start_ms": 1}, "begins at 1"),
        ({"tier": ""}, "tier"),
        ({"tier": "a/b"}, "tier"),
        ({"tier": "a\nb"}, "tier"),
        ({"topic": "no such/topic"}, "topic name"),
        ({"topic": None}, "topic is no text"),
        ({"instance": "7"}, "instance is no UUID"),
        ({"topic_id": 7}, "topic_id"),
        ({"sequence": None}, "sequence"),
    ],
)
def test_foreign_message_is_refused_by_what_is_wrong(change: dict[str, object], complaint: str) -> None:
    fields = json.loads(to_json(count("broker", 7))) | change
    with pytest.raises(WireError, match=complaint):
        from_json(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff", b"[" * 4000, b'"' + b"a" * MESSAGE_BYTES_MAX + b'"', b'{"tier": "a"}']
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        from_json(data)
