from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ottla.spark.lake.rows import json_field


def times(*values: bytes | None) -> list[int | None]:
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    found: list[int | None] = json_field("at")(batch).to_pylist()
    return found


def test_whole_numbers_are_milliseconds() -> None:
    assert times(b'{"at": 5, "x": [1, {"at": 9}]}', b' {"y": "z"}', b'{"at": null}', b'{"at": -7}') == [
        5,
        None,
        None,
        -7,
    ]


def test_texts_are_times_in_utc_unless_they_say_otherwise() -> None:
    assert times(b'{"at": "1970-01-01T00:00:01"}', b'{"at": "1970-01-01T01:00:00+01:00"}', b'{"at": "soon"}') == [
        1000,
        0,
        None,
    ]


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"  ",
        b"no json",
        b"[1]",
        b"5",
        b'{"at": true}',
        b'{"at": {}}',
        b'{"at": 123456789012345678901234567890}',
        b'{"at": 1}{"at": 2}',
        b'{"at": 1}\n{"at": 2}',
        b"\xff\xfe",
        b"[" * 100_000,
        None,
    ],
)
def test_a_value_without_a_time_disturbs_no_other(odd: bytes | None) -> None:
    assert times(b'{"at": 1}', odd, b'{"at": 3}') == [1, None, 3]
    assert times(odd) == [None]


def test_two_documents_in_one_value_and_none_in_another_shift_nothing() -> None:
    assert times(b'{"at": 1}{"at": 2}', b"", b'{"at": 3}') == [None, None, 3]
    assert times(b'{"at": 1}\n{"at": 2}', b" ", b'{"at": 3}') == [None, None, 3]
    assert times(b'{\n"at": 1\n}', b'{"at": 3}') == [1, 3]


def test_a_batch_of_many_is_read_whole() -> None:
    assert times(*(json.dumps({"at": number, "text": "x" * 50}).encode() for number in range(20_000))) == list(
        range(20_000)
    )


def test_no_records_have_no_times() -> None:
    assert times() == []
