from __future__ import annotations

import struct

import pytest

from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)


def test_request_header_version_1_is_read() -> None:
    frame = request_frame(ApiKey.METADATA, 4, 7, "kcat", b"body")
    assert frame == struct.pack(">ihhih", 18, 3, 4, 7, 4) + b"kcatbody"
    assert read_request_header(frame, 4, len(frame)) == RequestHeader(3, 4, 7, "kcat", len(frame) - 4)


def test_request_header_version_2_has_tagged_fields_and_a_plain_client_id() -> None:
    frame = request_frame(ApiKey.METADATA, 9, 7, None, b"body")
    assert frame == struct.pack(">ihhih", 15, 3, 9, 7, -1) + b"\x00body"
    assert read_request_header(frame, 4, len(frame)) == RequestHeader(3, 9, 7, None, len(frame) - 4)


def test_unknown_tagged_fields_of_a_header_are_stepped_over() -> None:
    data = struct.pack(">hhih", 3, 9, 7, -1) + b"\x02" + b"\x05\x03abc" + b"\x81\x01\x00" + b"body"
    assert read_request_header(data, 0, len(data)).body_position == len(data) - 4


def test_header_of_an_unknown_api_is_read_so_that_it_can_be_named() -> None:
    data = struct.pack(">hhih", 999, 1, 7, -1)
    assert read_request_header(data, 0, len(data)).api_key == 999


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack(">hhi", 3, 4, 7),
        struct.pack(">hhih", 3, 4, 7, 5) + b"kcat",
        struct.pack(">hhih", 3, 4, 7, -2),
        struct.pack(">hhih", 3, 4, 7, 2) + b"\xff\xfe",
        struct.pack(">hhih", 3, 9, 7, -1),
        struct.pack(">hhih", 3, 9, 7, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 9, 7, -1) + b"\x01\x05\x09abc",
    ],
)
def test_ill_formed_request_header_is_refused(data: bytes) -> None:
    behind = bytes(100)  # another frame in the same buffer must not be read
    with pytest.raises(WireError):
        read_request_header(data + behind, 0, len(data))


@pytest.mark.parametrize(
    ("api", "version", "head"),
    [
        (ApiKey.METADATA, 8, struct.pack(">ii", 8, 7)),
        (ApiKey.METADATA, 9, struct.pack(">iib", 9, 7, 0)),
        (ApiKey.API_VERSIONS, 3, struct.pack(">ii", 8, 7)),
    ],
)
def test_response_frame_has_the_header_of_its_version(api: ApiKey, version: int, head: bytes) -> None:
    frame = response_frame(api, version, 7, b"body")
    assert frame == head + b"body"
    assert read_response_header(api, version, frame, 4, len(frame)) == (7, len(head))


def test_too_long_client_id_is_refused_by_the_writer() -> None:
    with pytest.raises(ValueError, match="32767 are allowed"):
        request_frame(ApiKey.METADATA, 4, 1, "x" * 40_000, b"")
