"""Bytes of a hostile peer: every reader of every API and version ends in a value or in `WireError`, within bounds."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import read_fetch, read_fetch_steps
from ottla.protocol.frame import read_request_header, read_response_header
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_class,
    response_class,
)
from ottla.protocol.primitives import write_uvarint
from ottla.protocol.produce import PARTITIONS_MAX, read_produce, read_produce_steps
from ottla.protocol.reader import ELEMENT_BYTES, REQUEST_ELEMENTS_MAX
from ottla.protocol.schemas.metadata import MetadataRequestTopic
from ottla.runtime.steps import Steps, run_steps
from tests.property.property_settings import examples_max, exhaustive, is_tried
from tests.property.wire_samples import sample
from tests.property.wire_strategies import API_AND_VERSION, IDS, requests, responses, version_id

EVERY_VERSION = pytest.mark.parametrize(("api", "version"), API_AND_VERSION, ids=IDS)
FEW = settings(max_examples=examples_max(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# Wrong counts and lengths: int32, int16 and compact; huge, negative, and one more than null.
LIES = [
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -2),
    struct.pack(">i", -(2**31)),
    struct.pack(">h", 2**15 - 1),
    struct.pack(">h", -2),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x00",
]
# Of each encoding the largest: no other number makes a reader that trusts it take more memory.
HUGE_LIES = [LIES[0], LIES[3], LIES[6]]

T = TypeVar("T")
Read = Callable[[bytes], object]


def readers(api: ApiKey, version: int, *, is_request: bool) -> list[Read]:
    """Every function that reads such a body."""
    if not is_request:
        return [lambda body: decode_response(api, version, body)]
    found: list[Read] = [lambda body: decode_request(api, version, body)]
    if api is ApiKey.PRODUCE:
        found.append(lambda body: read_produce_in_place(body, version))
    if api is ApiKey.FETCH:
        found.append(lambda body: read_fetch_in_place(body, version))
    return found


def read_produce_in_place(body: bytes, version: int) -> object:
    before, end = 6, 6 + len(body)
    buffer = bytearray(b"before" + body + b"after" * 20)
    request = same_in_steps(
        lambda: read_produce(buffer, before, end, version), read_produce_steps(buffer, before, end, version)
    )
    for _, partitions in request.topics:
        for _, records_position, records_end in partitions:
            assert records_position == records_end == -1 or before <= records_position <= records_end <= end
    return request


def read_fetch_in_place(body: bytes, version: int) -> object:
    buffer = bytearray(b"before" + body + b"after")
    return same_in_steps(
        lambda: read_fetch(buffer, 6, 6 + len(body), version), read_fetch_steps(buffer, 6, 6 + len(body), version)
    )


def same_in_steps(read: Callable[[], T], steps: Steps[T]) -> T:
    """The value of one read, or its refusal; a read in steps gives the same."""
    try:
        found = read()
    except WireError:
        with pytest.raises(WireError):
            run_steps(steps)
        raise
    assert run_steps(steps) == found
    return found


def value_or_refusal(read: Read, body: bytes) -> None:
    try:
        read(body)
    except WireError as refusal:
        assert str(refusal)  # noqa: PT017 - the error is returned


@st.composite
def mutated(draw: st.DrawFn, body: bytes) -> bytes:
    """One to three corruptions: a truncation, a wrong number, inserted bytes, removed bytes, flipped bits."""
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(body)))
        lie = draw(st.sampled_from(LIES) | st.binary(min_size=1, max_size=8))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            body = body[:position]
        elif kind == 1:
            body = body[:position] + lie + body[position + len(lie) :]
        elif kind == 2:
            body = body[:position] + lie + body[position:]
        elif kind == 3:
            body = body[:position] + body[position + len(lie) :]
        else:
            body = (
                body[:position]
                + bytes(b ^ draw(st.integers(1, 255)) for b in body[position : position + 1])
                + (body[position + 1 :])
            )
    return body


@EVERY_VERSION
@FEW
@given(data=st.data())
def test_mutated_request_is_read_or_refused(api: ApiKey, version: int, data: st.DataObject) -> None:
    body = data.draw(mutated(encode_request(api, version, data.draw(requests(api, version)))))
    for read in readers(api, version, is_request=True):
        value_or_refusal(read, body)


@EVERY_VERSION
@FEW
@given(data=st.data())
def test_mutated_response_is_read_or_refused(api: ApiKey, version: int, data: st.DataObject) -> None:
    body = data.draw(mutated(encode_response(api, version, data.draw(responses(api, version)))))
    for read in readers(api, version, is_request=False):
        value_or_refusal(read, body)


@EVERY_VERSION
@FEW
@given(body=st.binary(max_size=200))
def test_noise_is_read_or_refused(api: ApiKey, version: int, body: bytes) -> None:
    for is_request in (True, False):
        for read in readers(api, version, is_request=is_request):
            value_or_refusal(read, body)


# Of librdkafka these requests have bytes too many, and every broker takes them.
CLIENTS_ADD_BYTES = (ApiKey.METADATA, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)


@exhaustive
@EVERY_VERSION
def test_every_truncation_of_a_message_is_refused(api: ApiKey, version: int) -> None:
    bodies = [
        (True, encode_request(api, version, sample(request_class(api), version))),
        (False, encode_response(api, version, sample(response_class(api), version))),
    ]
    for is_request, body in bodies:
        for read in readers(api, version, is_request=is_request):
            read(body)
            for length in filter(is_tried, range(len(body))):
                with pytest.raises(WireError):
                    read(body[:length])
            if is_request and api in CLIENTS_ADD_BYTES:
                assert read(body + b"\x00\x00\x00") == read(body)
                continue
            with pytest.raises(WireError, match="after its end"):
                read(body + b"\x00")


@exhaustive
@EVERY_VERSION
def test_wrong_counts_cost_neither_memory_nor_time(api: ApiKey, version: int) -> None:
    """Each count, length and number of a message in turn is overwritten by every wrong one."""
    bodies = [
        (True, encode_request(api, version, sample(request_class(api), version))),
        (False, encode_response(api, version, sample(response_class(api), version))),
    ]

    def read_all(lies: Iterable[bytes]) -> None:
        for is_request, body in bodies:
            for read in readers(api, version, is_request=is_request):
                for position in filter(is_tried, range(len(body))):
                    for lie in lies:
                        value_or_refusal(read, body[:position] + lie + body[position + len(lie) :])

    # Of this process: a machine with other work fails nothing.
    started_s = time.process_time()
    read_all([lie for lie in LIES if lie not in HUGE_LIES])
    # Traced reads take four times as long.
    tracemalloc.start()
    try:
        read_all(HUGE_LIES)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20
    assert time.process_time() - started_s < 20


def flexible_names(count: int) -> bytes:
    """A DeleteTopics v4 body with this many empty names: one byte each."""
    body = bytearray()
    write_uvarint(body, count + 1)
    return bytes(body) + b"\x01" * count + b"\x00\x00\x00\x00" + b"\x00"


def test_request_with_too_many_elements_is_refused_before_they_are_created() -> None:
    body = flexible_names(REQUEST_ELEMENTS_MAX + 1)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=f"more than {REQUEST_ELEMENTS_MAX} elements"):
            decode_request(ApiKey.DELETE_TOPICS, 4, body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 16


def test_produce_with_too_many_partitions_is_refused() -> None:
    count = PARTITIONS_MAX + 1
    body = struct.pack(">hhiih1si", -1, -1, 1000, 1, 1, b"t", count) + struct.pack(">ii", 0, -1) * count
    with pytest.raises(WireError, match=f"more than {PARTITIONS_MAX} topics or partitions"):
        run_steps(read_produce_steps(bytearray(body), 0, len(body), 7))


def outermost_array(request: object) -> str | None:
    """The name of its first field with elements."""
    names: tuple[str, ...] = request.__slots__  # type: ignore[attr-defined]
    return next((name for name in names if isinstance(getattr(request, name), list) and getattr(request, name)), None)


WITH_ARRAYS = [
    (api, version)
    for api, version in API_AND_VERSION
    if outermost_array(sample(request_class(api), version)) is not None
]

CHEAPEST = 3_000


@pytest.mark.parametrize(("api", "version"), WITH_ARRAYS, ids=[version_id(*each) for each in WITH_ARRAYS])
def test_memory_of_a_request_is_bounded_by_its_elements(api: ApiKey, version: int) -> None:
    """Thousands of the cheapest elements in the outermost array: what they cost is what the limit counts on."""
    request = sample(request_class(api), version)
    name = outermost_array(request)
    assert name is not None
    setattr(request, name, [cheapest(getattr(request, name)[0])] * CHEAPEST)
    body = encode_request(api, version, request)
    decode_request(api, version, encode_request(api, version, sample(request_class(api), version)))
    tracemalloc.start()
    try:
        decode_request(api, version, body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < ELEMENT_BYTES * CHEAPEST + len(body)


def cheapest(element: object) -> object:
    """An element of the same kind with nothing in it."""
    if isinstance(element, str):
        return ""
    empty: object = type(element)()
    if isinstance(empty, MetadataRequestTopic):
        empty.name = ""  # null is for later versions
    return empty


@FEW
@given(data=st.binary(max_size=60), before=st.integers(0, 4))
def test_headers_of_noise_are_read_or_refused(data: bytes, before: int) -> None:
    buffer = bytearray(b"\x01" * before + data + b"\x01" * 40)
    end = before + len(data)
    try:
        header = read_request_header(buffer, before, end)
        assert before + 10 <= header.body_position <= end
    except WireError:
        pass
    for api, version in API_AND_VERSION:
        try:
            _, position = read_response_header(api, version, buffer, before, end)
            assert before + 4 <= position <= end
        except WireError:
            pass
