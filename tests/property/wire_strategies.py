"""Messages for the wire tests: random instances of the message classes, and the same messages through kio, the oracle.

kio is generated from Apache Kafka's own message definitions.  It reads only bytes that these tests wrote: its
native reader ends the process on some hostile bytes.
"""

from __future__ import annotations

import io
from dataclasses import fields
from datetime import datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.reader import wire_field
from ottla.protocol.schema import ZERO_UUID, Kind, WireField

API_AND_VERSION = [
    (api, version) for api, (lowest, highest) in KNOWN_VERSIONS.items() for version in range(lowest, highest + 1)
]


# Their requests have readers that were written by hand.
_READ_IN_PLACE = (ApiKey.PRODUCE, ApiKey.FETCH)


def version_id(api: ApiKey, version: int) -> str:
    """`metadata-v12` of the highest version; `metadata-v0-lowest` and `metadata-v1-between`, which tests/long_suites.py
    names.  The lowest version of what is read in place counts as much as the highest: `fetch-v4`."""
    lowest, highest = KNOWN_VERSIONS[api]
    if version == highest or (version == lowest and api in _READ_IN_PLACE):
        return f"{api.name.lower()}-v{version}"
    return f"{api.name.lower()}-v{version}-{'lowest' if version == lowest else 'between'}"


IDS = [version_id(api, version) for api, version in API_AND_VERSION]

_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_KNOWN_ERRORS = [int(code) for code in ErrorCode if code <= ErrorCode.TRANSACTION_ABORTABLE]
_TEXT = st.text(max_size=12)
# The range of kio's timedelta without rounding.
_TIMEDELTA_MS_MAX = 2**43
# The range of kio's datetime.
_LAST_DATETIME_MS = 253_402_300_799_000


def requests(api: ApiKey, version: int) -> st.SearchStrategy[object]:
    return structures(request_class(api), version)


def responses(api: ApiKey, version: int) -> st.SearchStrategy[object]:
    return structures(response_class(api), version)


def structures(struct_class: type, version: int) -> st.SearchStrategy[object]:
    """Instances whose fields of other versions have their defaults."""
    present = {
        declared.name: _field_values(declared.name, wire_field(declared), version)
        for declared in fields(struct_class)
        if version in wire_field(declared).versions
    }
    return st.builds(struct_class, **present)


def _field_values(name: str, wire: WireField, version: int) -> st.SearchStrategy[object]:
    values = _values(name, wire, version)
    if wire.is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if version in wire.nullable else values


def _values(name: str, wire: WireField, version: int) -> st.SearchStrategy[object]:
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        return structures(wire.struct_class, version)
    if wire.kind is Kind.STRING:
        return _TEXT
    if wire.kind is Kind.UUID:
        return st.uuids() | st.just(ZERO_UUID)
    if wire.kind in (Kind.RECORDS, Kind.OPAQUE):
        return st.binary(max_size=40)
    if wire.kind is Kind.BOOLEAN:
        return st.booleans()
    if wire.kind is Kind.FLOAT64:
        return st.floats(allow_nan=False)
    if name.endswith("error_code"):
        return st.sampled_from(_KNOWN_ERRORS)
    if name in ("log_append_time_ms", "transaction_start_time_ms"):
        times = st.integers(0, _LAST_DATETIME_MS // 1000).map(lambda s: s * 1000)
        # kio has no start for a transaction that has none.
        return times if name == "transaction_start_time_ms" else times | st.just(-1)
    if name in ("retention_time_ms", "session_lifetime_ms"):
        return st.integers(-_TIMEDELTA_MS_MAX, _TIMEDELTA_MS_MAX)
    half = 1 << (_BITS[wire.kind] - 1)
    return st.integers(-half, half - 1)


def kio_read(api: ApiKey, version: int, body: bytes, *, is_request: bool) -> object:
    schema = load_request_schema(api, version) if is_request else load_response_schema(api, version)
    message, size_bytes = entity_reader(schema)(body, 0)
    assert size_bytes == len(body), "kio leaves bytes unread"
    return message


def kio_write(message: object) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)  # type: ignore[type-var]
    return out.getvalue()


def assert_same(ours: object, theirs: object, version: int) -> None:
    """Field by field, by name; and every field of kio's message has one here."""
    names = set()
    for declared in fields(ours):  # type: ignore[arg-type]
        if version not in wire_field(declared).versions:
            continue
        name = declared.name
        if not hasattr(theirs, name):
            name = name.removesuffix("_ms")
        names.add(name)
        _assert_same_value(getattr(ours, declared.name), getattr(theirs, name), version)
    assert names == {declared.name for declared in fields(theirs)}  # type: ignore[arg-type]


def _assert_same_value(ours: object, theirs: object, version: int) -> None:
    if isinstance(theirs, tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            _assert_same_value(mine, other, version)
    elif hasattr(theirs, "__dataclass_fields__"):
        assert_same(ours, theirs, version)
    elif isinstance(theirs, timedelta):
        assert ours == theirs // timedelta(milliseconds=1)
    elif isinstance(theirs, datetime):
        assert ours == round(theirs.timestamp() * 1000)
    elif isinstance(ours, UUID):
        assert ours == (theirs or ZERO_UUID)
    elif theirs is None:
        assert ours in (None, -1)
    elif hasattr(theirs, "value"):
        assert ours == theirs.value
    else:
        assert ours == theirs
