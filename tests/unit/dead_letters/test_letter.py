"""Dead letters as records, and back."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.client.fetching.messages import Message
from ottla.dead_letters import DeadLetter, NotADeadLetter, Origin, letter_of
from ottla.dead_letters.letter import ERROR_CHARS_MAX, REPLAYED_FROM, error_class_of, replay_key
from ottla.protocol.schema import ZERO_UUID
from ottla.records.record import Headers

ORIGIN = Origin("cluster", "orders", UUID(int=700), partition=3, offset=41, timestamp_ms=1_307_836_800_000)
LETTER = DeadLetter(ORIGIN, b"k", b"\xff{", (("trace", b"1"), ("trace", None)), "json.JSONDecodeError", "at 1", "PARSE")


def as_message(letter: DeadLetter, *, headers: Headers | None = None) -> Message:
    return Message("orders.dead-letter", 3, 7, 5, letter.key, letter.value, headers or letter.record_headers)


def test_letter_is_read_back_as_it_was_written() -> None:
    assert letter_of(as_message(LETTER)) == LETTER


def test_letter_says_where_it_comes_from_in_the_headers_of_kafka_connect() -> None:
    headers = dict(LETTER.record_headers)
    assert headers["__connect.errors.topic"] == b"orders"
    assert headers["__connect.errors.partition"] == b"3"
    assert headers["__connect.errors.offset"] == b"41"
    assert headers["__connect.errors.exception.class.name"] == b"json.JSONDecodeError"
    assert headers["__connect.errors.exception.message"] == b"at 1"


def test_letter_of_a_letter_has_the_headers_of_the_first_one_as_they_were() -> None:
    again = DeadLetter(
        replace(ORIGIN, topic="orders.dead-letter", offset=7), b"k", b"\xff{", LETTER.record_headers, "E", "", "REPLAY"
    )
    found = letter_of(as_message(again))
    assert found == again
    assert found.headers == LETTER.record_headers


def test_letter_of_kafka_connect_is_read_with_the_time_of_its_record() -> None:
    headers = (
        ("own", b"1"),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"12"),
        ("__connect.errors.connector.name", b"sink"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", None),
    )
    found = letter_of(as_message(LETTER, headers=headers))
    assert found.origin == Origin("", "orders", ZERO_UUID, 0, 12, 5)
    assert (found.headers, found.stage, found.error_message) == ((("own", b"1"),), "VALUE_CONVERTER", "")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("__connect.errors.topic", b"orders"),),
        (
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.partition", b"-1"),
            ("__connect.errors.offset", b"1"),
        ),
        (
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.partition", b"0"),
            ("__connect.errors.offset", "\u00b2".encode()),
        ),
        (*LETTER.record_headers[:-2], ("ottla.origin.topic.id", b"no id"), ("ottla.origin.timestamp", b"1")),
        (*LETTER.record_headers[:-1], ("ottla.origin.timestamp", b"noon")),
    ],
)
def test_message_without_an_origin_is_no_letter(headers: Headers) -> None:
    with pytest.raises(NotADeadLetter, match=r"orders\.dead-letter-3, offset 7"):
        letter_of(Message("orders.dead-letter", 3, 7, 5, b"k", b"v", headers))


def test_long_text_of_an_error_is_cut_and_a_broken_one_is_kept_readable() -> None:
    long = letter_of(as_message(replace(LETTER, error_message="x" * 1_000_000)))
    assert long.error_message == "x" * ERROR_CHARS_MAX
    broken = letter_of(as_message(replace(LETTER, error_message="at \udcff")))
    assert broken.error_message == "at \\udcff"


def test_record_that_is_put_back_has_its_own_headers_and_one_that_names_its_origin() -> None:
    assert LETTER.replayed_headers == (*LETTER.headers, (REPLAYED_FROM, ORIGIN.identity.encode()))
    # Put back, failed, and put back again: the place where it failed last is its origin.
    later = replace(LETTER, origin=replace(ORIGIN, offset=99), headers=LETTER.replayed_headers)
    assert later.replayed_headers == (*LETTER.headers, (REPLAYED_FROM, later.origin.identity.encode()))


def test_recreated_topic_or_another_cluster_is_another_origin() -> None:
    others = [
        replace(ORIGIN, topic_id=UUID(int=701)),
        replace(ORIGIN, topic_id=ZERO_UUID),
        replace(ORIGIN, cluster_id="other"),
        replace(ORIGIN, partition=4),
        replace(ORIGIN, offset=42),
    ]
    assert len({each.identity for each in (ORIGIN, *others)}) == len(others) + 1
    assert replace(ORIGIN, timestamp_ms=0).identity == ORIGIN.identity
    assert replay_key("orders", ORIGIN.identity) != replay_key("elsewhere", ORIGIN.identity)


def test_class_of_an_error_is_named_as_a_traceback_does() -> None:
    assert error_class_of(ValueError("no")) == "ValueError"
    assert error_class_of(NotADeadLetter("no")) == "ottla.dead_letters.letter.NotADeadLetter"
