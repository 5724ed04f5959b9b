from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

import ottla
from ottla.client.fetching.messages import Message, messages_of
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.records.record_run import read_runs

ONE = Message("page-views", 3, 42, 1_700_000_000_123, b"ada", b"/jobs", (("trace", b"1"), ("trace", b"2")))


def test_messages_are_those_of_the_run_with_their_place() -> None:
    records = [Record(0, 5, b"k%d" % number, None if number % 7 else b"v", (("h", b"x"),)) for number in range(100)]
    (run,) = read_runs(memoryview(build_batch(records, base_offset=900)))
    messages = list(messages_of("page-views", 3, run))
    assert messages == [Message("page-views", 3, 900 + number, *record[1:]) for number, record in enumerate(records)]
    assert {type(message) for message in messages} == {Message}
    assert messages[99].offset == 999
    assert messages[99].value is None


def test_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ONE.value = b"other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ONE.anything = 1  # type: ignore[attr-defined]


def test_message_shows_its_place_and_the_beginning_of_what_is_long() -> None:
    assert repr(ONE._replace(headers=())) == (
        "Message(page-views-3@42, timestamp_ms=1700000000123, key=b'ada', value=b'/jobs')"
    )
    assert "headers=(('trace', b'1')," in repr(ONE)
    long = repr(ONE._replace(value=b"v" * 1_000_000))
    assert "(1,000,000 bytes)" in long
    assert len(long) < 300


def test_message_tells_its_time_where_a_datetime_can() -> None:
    assert ONE.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert ONE._replace(timestamp_ms=-1).timestamp is None
    assert ONE._replace(timestamp_ms=(1 << 63) - 1).timestamp is None


def test_last_header_of_a_name_counts() -> None:
    assert ONE.header("trace") == b"2"
    assert ONE.header("other") is None


def test_message_with_deserialized_values_keeps_their_type() -> None:
    decoded: Message[str, dict[str, int]] = Message("t", 0, 0, 0, "key", {"a": 1})
    assert decoded.value["a"] == 1


def test_package_gives_its_names_without_importing_the_client_before() -> None:
    program = (
        "import ottla, sys; assert 'ottla.client.fetching.messages' not in sys.modules; "
        "assert 'Message' in dir(ottla); print(ottla.Message.__name__)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"Message\n"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ottla.Nothing
