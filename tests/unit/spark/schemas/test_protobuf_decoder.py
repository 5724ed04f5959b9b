from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from ottla.registry.protobuf_format import descriptors, pool_of
from ottla.spark.schemas.registry_decoder import RegistryDecoder
from ottla.spark.schemas.registry_reader import FoundSchema, UnreadableSchema
from tests.unit.spark.schemas.test_registry_decoder import Registry, wire

TEXT: Final = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; message Inner { string y = 1; } }
enum State { NEW = 0; PAID = 1; }
message Order {
  string id = 1;
  optional int64 cents = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  State state = 5;
  Other.Inner inner = 6;
  google.protobuf.Timestamp at = 7;
  uint64 big = 8;
  bytes raw = 9;
  repeated Other others = 10;
}
message Loop { Loop next = 1; }
"""
ORDER_INDEX: Final = b"\x02\x02"
NOON: Final = datetime(2026, 6, 1, 12, 0, 0, 5, tzinfo=UTC)


def message(name: str, **fields: Any) -> bytes:
    made: Any = GetMessageClass(pool_of(descriptors(TEXT, {})).FindMessageTypeByName(name))(**fields)
    data: bytes = made.SerializeToString()
    return data


def test_messages_become_columns() -> None:
    schema = FoundSchema("PROTOBUF", TEXT)
    full = message(
        "shop.Order",
        id="7",
        cents=0,
        tags=["a", "b"],
        counts={"c": 1},
        state=1,
        inner={"y": "z"},
        at={"seconds": int(NOON.timestamp()), "nanos": 5_000},
        big=2**64 - 1,
        raw=b"\xff",
        others=[{"x": 1}],
    )
    column = pa.array([wire(1, ORDER_INDEX + full), wire(1, ORDER_INDEX)], pa.binary())
    rows = RegistryDecoder(Registry(id1=schema), schema, "shop.Order").decode(column).to_pylist()
    assert [row["error"] for row in rows] == [None, None]
    assert rows[0]["value"] == {
        "id": "7",
        "cents": 0,
        "tags": ["a", "b"],
        "counts": [("c", 1)],
        "state": "PAID",
        "inner": {"y": "z"},
        "at": NOON,
        "big": Decimal(2**64 - 1),
        "raw": b"\xff",
        "others": [{"x": 1}],
    }
    # A missing field is null where it has presence.
    empty = rows[1]["value"]
    assert (empty["id"], empty["cents"], empty["inner"], empty["at"], empty["state"]) == ("", None, None, None, "NEW")


def test_first_message_is_read_unless_one_is_named() -> None:
    schema = FoundSchema("PROTOBUF", TEXT)
    column = pa.array([wire(1, b"\0" + message("shop.Other", x=5)), wire(1, ORDER_INDEX)], pa.binary())
    rows = RegistryDecoder(Registry(id1=schema), schema).decode(column).to_pylist()
    assert rows[0]["value"] == {"x": 5}
    assert "a shop.Order, and shop.Other is read" in rows[1]["error"]


def test_message_within_a_message_is_found_by_its_path() -> None:
    schema = FoundSchema("PROTOBUF", TEXT)
    column = pa.array([wire(1, b"\x04\x00\x00" + message("shop.Other.Inner", y="z"))], pa.binary())
    [row] = RegistryDecoder(Registry(id1=schema), schema, "shop.Other.Inner").decode(column).to_pylist()
    assert row["value"] == {"y": "z"}


def test_fields_that_an_older_writer_had_not_are_as_if_left_out() -> None:
    older = FoundSchema("PROTOBUF", 'syntax = "proto3"; package shop; message Other { }')
    newer = FoundSchema("PROTOBUF", TEXT)
    column = pa.array([wire(1, b"\0")], pa.binary())
    [row] = RegistryDecoder(Registry(id1=older), newer).decode(column).to_pylist()
    assert row["value"] == {"x": 0}


@pytest.mark.parametrize(
    "payload", [b"", b"\x80", b"\x02", b"\x02\x01", b"\x02\x40", b"\x03", b"\xfe\xff\x03", b"\0\xff\xff"]
)
def test_bad_messages_have_reasons(payload: bytes) -> None:
    schema = FoundSchema("PROTOBUF", TEXT)
    [row] = RegistryDecoder(Registry(id1=schema), schema).decode(pa.array([wire(1, payload)], pa.binary())).to_pylist()
    assert row["value"] is None
    assert row["error"]


def test_schema_without_columns_is_refused() -> None:
    with pytest.raises(UnreadableSchema, match="refers to itself"):
        RegistryDecoder(Registry(), FoundSchema("PROTOBUF", TEXT), "shop.Loop")
    with pytest.raises(UnreadableSchema, match="no message shop"):
        RegistryDecoder(Registry(), FoundSchema("PROTOBUF", TEXT), "shop.Nothing")
    with pytest.raises(UnreadableSchema, match="not defined"):
        RegistryDecoder(Registry(), FoundSchema("PROTOBUF", 'syntax = "proto3"; message M { X x = 1; }'))
