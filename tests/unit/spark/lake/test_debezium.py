"""Envelopes of Debezium as rows, against Python's own JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.errors import FunctionRefused, LakeError, RecordsRefused
from ottla.spark.lake.change_files import ChangeFiles
from ottla.spark.lake.changes import BUCKET, NO_CHANGE, UpsertRule
from ottla.spark.lake.debezium import DebeziumRegistry, debezium_json
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import parse_target
from ottla.spark.schemas import registry_decoder
from ottla.spark.schemas.registry_decoder import RegistryDecoder
from ottla.spark.schemas.registry_reader import FoundSchema, UnknownSchema
from ottla.spark.schemas.registry_security import RegistrySecurity
from tests.property.property_settings import example_settings

PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("share", pa.float64())])
DECODE = debezium_json(PEOPLE, ["id"], {"lsn": pa.int64()})


def records(events: list[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in events], pa.binary()),
            "value": pa.array([value for _, value in events], pa.binary()),
            "topic": ["people"] * len(events),
            "partition": pa.array([0] * len(events), pa.int32()),
            "offset": pa.array(range(40, 40 + len(events)), pa.int64()),
        }
    )


def event(op: str, row: dict[str, object], *, lsn: int = 1, wrapped: bool = False, indent: int | None = None) -> Any:
    before, after = (row, None) if op == "d" else (None, row)
    envelope: dict[str, object] = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 5,
        "source": {"lsn": lsn, "db": "x"},
    }
    key: dict[str, object] = {"id": row["id"]}
    if wrapped:
        envelope, key = {"schema": {"type": "struct"}, "payload": envelope}, {"schema": {}, "payload": key}
    return json.dumps(key).encode(), json.dumps(envelope, indent=indent).encode()


def test_the_columns_of_decoded_events_are_known_before() -> None:
    found = DECODE(records([event("c", {"id": 1, "name": "x", "share": 0.5})]))
    assert DECODE.row_schema == found.drop_columns([NO_CHANGE]).schema  # type: ignore[attr-defined]  # of this decode


rows = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={"name": st.none() | st.text(max_size=5), "share": st.floats(-1, 1), "other": st.integers()},
)
events = st.tuples(st.sampled_from("crud-"), rows, st.booleans(), st.sampled_from([None, 2]), st.integers(0, 2**60))


@example_settings(200)
@given(st.lists(events, min_size=1, max_size=10))
def test_rows_are_those_that_one_event_after_the_other_gives(found: list[Any]) -> None:
    given_events, expected = [], []
    for op, row, wrapped, indent, lsn in found:
        key, value = event(op, row, lsn=lsn, wrapped=wrapped, indent=indent)
        given_events.append((key, None if op == "-" else value))
        if op in "d-":
            expected.append({"id": row["id"], "name": None, "share": None, "deleted": True})
        else:
            expected.append({"id": row["id"], "name": row.get("name"), "share": row.get("share"), "deleted": False})
        expected[-1]["source_lsn"] = None if op == "-" else lsn
        expected[-1][NO_CHANGE] = op == "-"
    assert DECODE(records(given_events)).to_pylist() == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b'{"op": "t"}', "the value of the record at offset 41 of people partition 0 is no change of a row"),
        (b'{"op": "c"}', "offset 41 of people partition 0 is no change"),
        (b"[1]", "offset 41 of people partition 0 is no JSON object"),
        (b"", "offset 41 of people partition 0 is no JSON object"),
        (b'{"op": "c", "after": {"id": "text"}}', "do not have the types of the columns after, op"),
    ],
)
def test_a_record_that_is_no_change_is_refused_by_its_offset(value: bytes, problem: str) -> None:
    with pytest.raises(LakeError, match=problem):
        DECODE(records([event("c", {"id": 1}), (b'{"id": 2}', value)]))


@pytest.mark.parametrize("keeps_history", [False, True])
def test_a_tombstone_of_a_connector_changes_nothing(tmp_path: Path, keeps_history: bool) -> None:
    """It has no sequence, and where it is repeated the row may be back."""
    rule = UpsertRule(("id",), "source_lsn", 1, keeps_history)
    files = ChangeFiles(LakeFiles(parse_target(tmp_path), (BUCKET,)), rule)
    key = b'{"id": 1}'
    for batch in (
        records([event("d", {"id": 1}, lsn=1), (key, None), event("c", {"id": 1, "name": "Ana"}, lsn=2)]),
        records([event("d", {"id": 1}, lsn=1), (key, None)]),
        records([(key, None)]),
    ):
        timed = batch.append_column("timestamp", pa.array([0] * batch.num_rows, pa.timestamp("us")))
        files.add(RowShape((), (), DECODE).rows(timed, {"people": "id"}), timed.column("value"))
    (file,) = files.close()
    found = pq.ParquetFile(tmp_path / file.path).read()
    assert NO_CHANGE not in found.schema.names
    assert (found["source_lsn"].null_count, found["name"].to_pylist()[-1]) == (0, "Ana")
    assert found["deleted"].to_pylist()[-1] is False


def test_keys_without_a_type_are_refused() -> None:
    with pytest.raises(LakeError, match="the columns have no 'place'"):
        debezium_json(PEOPLE, ["id", "place"])


@pytest.mark.parametrize("name", ["deleted", "source_lsn"])
def test_a_column_of_the_database_that_the_change_has_too_is_refused(name: str) -> None:
    with pytest.raises(FunctionRefused, match=f"the database's column '{name}' has the name of a column of the change"):
        debezium_json(PEOPLE.append(pa.field(name, pa.int64())), ["id"], {"lsn": pa.int64()})


class Registry:
    """Knows schema 1."""

    def by_id(self, schema_id: int) -> FoundSchema:
        if schema_id != 1:
            raise UnknownSchema(f"no {schema_id}")
        return ENVELOPE


ENVELOPE = FoundSchema(
    "AVRO",
    json.dumps(
        {
            "type": "record",
            "name": "Envelope",
            "fields": [
                {
                    "name": "after",
                    "type": ["null", {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}],
                },
                {"name": "op", "type": "string"},
            ],
        }
    ),
)
# The row with the id 1, created.
CREATED = b"\0\0\0\0\1\2\2\2c"


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (b"no event", RecordsRefused, "wire format"),
        (CREATED[:-1], RecordsRefused, ""),
        (b"\0\0\0\0\2rest", LakeError, "UnknownSchema: no 2"),
    ],
)
def test_event_that_the_registrys_schema_does_not_fit_is_refused_and_one_of_an_unknown_schema_is_not(
    monkeypatch: pytest.MonkeyPatch, value: bytes, kind: type[LakeError], problem: str
) -> None:
    decoder = RegistryDecoder(Registry(), ENVELOPE)
    monkeypatch.setattr(registry_decoder, "shared_decoder", lambda *_: decoder)
    decode = DebeziumRegistry("http://registry", RegistrySecurity.of({}), ("", "", ()), ("", "", ()), ())
    assert decode(records([(b"k", CREATED)]))["id"].to_pylist() == [1]
    with pytest.raises(
        LakeError, match=f"record at offset 41 of people partition 0 cannot be read: .*{problem}"
    ) as raised:
        decode(records([(b"k", CREATED), (b"k", value)]))
    assert type(raised.value) is kind


def test_unknown_schema_beside_bytes_of_no_event_leaves_both_for_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = RegistryDecoder(Registry(), ENVELOPE)
    monkeypatch.setattr(registry_decoder, "shared_decoder", lambda *_: decoder)
    decode = DebeziumRegistry("http://registry", RegistrySecurity.of({}), ("", "", ()), ("", "", ()), ())
    with pytest.raises(LakeError, match=r"record at offset 41 .* UnknownSchema") as raised:
        decode(records([(b"k", b"no event"), (b"k", b"\0\0\0\0\2rest")]))
    assert not isinstance(raised.value, RecordsRefused)
