from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records.record_text import (
    BadLine,
    InputRecord,
    LineFormat,
    format_json,
    format_line,
    parse_json,
    parse_line,
)
from ottla.model.identifiers import TopicPartition
from ottla.records.record import Record

PLACE = TopicPartition("t", 3)
BYTES_OR_NULL = st.none() | st.binary(max_size=20)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 1 << 40),
    timestamp_ms=st.integers(-1, 1 << 40),
    key=BYTES_OR_NULL,
    value=BYTES_OR_NULL,
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), BYTES_OR_NULL), max_size=3).map(
        tuple
    ),
)


@given(RECORDS, st.integers(0, 100))
def test_parse_json_gives_back_any_record_that_format_json_wrote(record: Record, partition: int) -> None:
    line = format_json(TopicPartition("t", partition), record)
    assert line.count(b"\n") == 1
    assert parse_json(line) == InputRecord(record.key, record.value, record.headers, record.timestamp_ms, partition)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["key", "value", "headers", "name", "value_base64", "partition", "timestamp_ms"]), inner
            )
        ),
        max_leaves=6,
    ).map(lambda found: json.dumps(found).encode())
)
def test_parse_json_meets_any_line_with_a_bad_line_only(line: bytes) -> None:
    try:
        parse_json(line)
    except BadLine:
        return


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"", "not JSON"),
        (b"[1]", "object"),
        (b'{"headers": "x"}', "headers"),
        (b'{"headers": [{"value": "x"}]}', "headers"),
        (b'{"value_base64": "??"}', "base64"),
        (b'{"value": "x", "value_base64": "eA=="}', "replaces value"),
        (b'{"partition": "1"}', "whole number"),
        (b'{"timestamp_ms": true}', "whole number"),
        (b'{"timestamp_ms": 9223372036854775808}', "timestamp_ms is -1 to 9223372036854775807"),
        (b'{"timestamp_ms": -2}', "timestamp_ms is -1 to"),
        (b'{"key": "k", "vaule": "x"}', "no record has 'vaule'; did you mean 'value'?"),
        (b'{"a": "x"}', "no record has 'a'$"),
        (rb'{"headers": [{"name": "\ud800", "value": "x"}]}', "not UTF-8"),
    ],
)
def test_parse_json_says_what_is_wrong(line: bytes, what: str) -> None:
    with pytest.raises(BadLine, match=what.replace("?", r"\?")):
        parse_json(line)


def test_parse_json_writes_other_values_as_json() -> None:
    assert parse_json(b'{"value": {"a": [1, "\xc3\xa4"]}, "key": 7}') == InputRecord(b"7", '{"a": [1, "ä"]}'.encode())


def test_parse_line_takes_headers_key_and_value_apart() -> None:
    how = LineFormat(has_headers=True, has_key=True, key_separator=b"::", null_literal=b"-")
    assert parse_line(b"a:1,b:-\tkey::value::more", how) == InputRecord(
        b"key", b"value::more", (("a", b"1"), ("b", None))
    )
    assert parse_line(b"\t-::-", how) == InputRecord(None, None)


@pytest.mark.parametrize("line", [b"no tab::x", b"a:1\tno separator", b"no colon\tk::v", b"\xff:1\tk::v"])
def test_parse_line_says_what_is_missing(line: bytes) -> None:
    how = LineFormat(has_headers=True, has_key=True, key_separator=b"::")
    with pytest.raises(BadLine):
        parse_line(line, how)


def test_parse_line_names_the_separator_as_it_was_given() -> None:
    with pytest.raises(BadLine, match=r"^no '→' in the line, which must follow a key$"):
        parse_line(b"no separator", LineFormat(has_key=True, key_separator="→".encode()))


def test_parse_line_leaves_a_plain_line_as_it_is() -> None:
    assert parse_line(b"a\tb:c,\xff", LineFormat()) == InputRecord(None, b"a\tb:c,\xff")


def test_format_line_shows_the_parts_in_the_order_of_kafkas_tool() -> None:
    record = Record(7, 1000, b"k", None, (("h", b"v"), ("n", None)))
    everything = LineFormat(True, True, True, True, True, True)
    assert (
        format_line(PLACE, record, False, everything)
        == b"CreateTime:1000\tPartition:3\tOffset:7\th:v,n:null\tk\tnull\n"
    )
    assert format_line(PLACE, record, True, LineFormat(has_timestamp=True)) == b"LogAppendTime:1000\tnull\n"
    assert format_line(PLACE, record._replace(headers=()), False, LineFormat(has_headers=True)) == b"NO_HEADERS\tnull\n"
