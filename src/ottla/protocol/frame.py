"""Frames: a 4-byte length, a header, a body.

Request header:   api key int16, version int16, correlation id int32, client id (nullable string with an int16 length
in all versions), then tagged fields in flexible versions.
Response header:  correlation id int32, then tagged fields in flexible versions (never for ApiVersions).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.errors import WireError
from ottla.protocol.api import FLEXIBLE_FROM, ApiKey, request_header_version, response_header_version
from ottla.protocol.primitives import INT16_MAX, ends_early, skip_tagged_fields, take_text

if TYPE_CHECKING:
    from typing_extensions import Buffer

LENGTH_PREFIX: Final = struct.Struct(">i")
# api key, api version, correlation id, length of the client id
REQUEST_HEAD: Final = struct.Struct(">hhih")
RESPONSE_HEAD: Final = struct.Struct(">i")
_FRAME_HEAD: Final = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """`api_key` is a plain int: it may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(buffer: Buffer, position: int, end: int) -> RequestHeader:
    """The header of the request whose frame, without its length prefix, is `buffer[position:end]`.

    For an unknown api key tagged fields, if any, are left in the body.
    """
    data = memoryview(buffer)[:end]
    if end - position < REQUEST_HEAD.size:
        raise ends_early("a request header", REQUEST_HEAD.size, end - position)
    api_key, api_version, correlation_id, length = REQUEST_HEAD.unpack_from(data, position)
    position += REQUEST_HEAD.size
    client_id: str | None = None
    if length >= 0:
        client_id = take_text(data, position, length)
        position += length
    elif length != -1:
        raise WireError(f"the client id has the negative length {length}")
    flexible_from = FLEXIBLE_FROM.get(api_key)
    if flexible_from is not None and api_version >= flexible_from:
        position = skip_tagged_fields(data, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def read_response_header(api: ApiKey, version: int, buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The correlation id, and where the body starts."""
    if end - position < RESPONSE_HEAD.size:
        raise ends_early("a response header", RESPONSE_HEAD.size, end - position)
    correlation_id: int = RESPONSE_HEAD.unpack_from(buffer, position)[0]
    position += RESPONSE_HEAD.size
    if response_header_version(api, version) == 1:
        position = skip_tagged_fields(memoryview(buffer)[:end], position)
    return correlation_id, position


def request_frame(api: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """A whole request, length prefix included."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > INT16_MAX:
        raise ValueError(f"the client id has {len(name)} bytes, {INT16_MAX} are allowed")
    head = REQUEST_HEAD.pack(api, version, correlation_id, -1 if client_id is None else len(name)) + name
    if request_header_version(api, version) == 2:
        head += b"\x00"
    return b"".join((LENGTH_PREFIX.pack(len(head) + len(memoryview(body))), head, body))


def response_frame(api: ApiKey, version: int, correlation_id: int, body: Buffer) -> bytes:
    """A whole response, length prefix included."""
    return b"".join((response_head(api, version, correlation_id, len(memoryview(body))), body))


def response_head(api: ApiKey, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """What a response has before its body of that length, length prefix included."""
    length = RESPONSE_HEAD.size + body_bytes
    if response_header_version(api, version) == 1:
        return _FRAME_HEAD.pack(length + 1, correlation_id) + b"\x00"
    return _FRAME_HEAD.pack(length, correlation_id)
