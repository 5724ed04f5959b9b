"""Requests and responses of every known version, each through one class with the fields of all versions.

A field that a version lacks gets its default when read and is dropped when written.  So a handler has one body for all
versions.  Classes live in `schemas`, a module for each API, imported when the API is first used.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ottla.model.errors import WireError
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey, is_flexible
from ottla.protocol.reader import REQUEST_ELEMENTS_MAX, RESPONSE_ELEMENTS_MAX, message_steps, read_message
from ottla.protocol.writer import response_steps, write_message
from ottla.runtime.steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Buffer

# librdkafka (2.16) requests all topics with three extra zero bytes in flexible versions, and ends credentials with one.
# Apache Kafka never checks for bytes after a request's end; we do, except for these.
_CLIENTS_ADD_BYTES: Final = frozenset({ApiKey.METADATA, ApiKey.ALTER_USER_SCRAM_CREDENTIALS})


@cache
def request_class(api: ApiKey) -> type:
    return _message_class(api, "Request")


@cache
def response_class(api: ApiKey) -> type:
    return _message_class(api, "Response")


def decode_request(api: ApiKey, version: int, body: Buffer) -> object:
    """The request in `body`, an instance of `request_class(api)`; `WireError` for anything but one whole request."""
    _require_known(api, version)
    data = memoryview(body).cast("B")
    return read_message(
        request_class(api),
        version,
        is_flexible(api, version),
        data,
        REQUEST_ELEMENTS_MAX,
        allow_bytes_after=api in _CLIENTS_ADD_BYTES,
    )


def decode_request_steps(api: ApiKey, version: int, body: Buffer) -> Steps[object]:
    """`decode_request` with pauses.  Its records would be views of `body`, which must not change meanwhile."""
    _require_known(api, version)
    return message_steps(
        request_class(api),
        version,
        is_flexible(api, version),
        memoryview(body).cast("B"),
        REQUEST_ELEMENTS_MAX,
        allow_bytes_after=api in _CLIENTS_ADD_BYTES,
    )


def decode_response(api: ApiKey, version: int, body: Buffer) -> object:
    """The response in `body`.  Records in it are views of `body`."""
    _require_known(api, version)
    data = memoryview(body).cast("B")
    return read_message(response_class(api), version, is_flexible(api, version), data, RESPONSE_ELEMENTS_MAX)


def encode_request(api: ApiKey, version: int, message: object) -> bytes:
    """The request's body; `RequestError` when a field is set that this version lacks and that is not ignorable."""
    assert isinstance(message, request_class(api)), type(message)
    assert version in KNOWN_VERSIONS[api]
    return write_message(message, version, is_flexible(api, version), strict=True)


def encode_response(api: ApiKey, version: int, message: object) -> bytes:
    """The response's body; fields that this version lacks are left out."""
    assert isinstance(message, response_class(api)), type(message)
    assert version in KNOWN_VERSIONS[api]
    return write_message(message, version, is_flexible(api, version), strict=False)


def encode_response_steps(
    api: ApiKey, version: int, message: object, size_bytes_max: int | None = None
) -> Steps[bytearray]:
    """`encode_response` with pauses.  Raises `WireError` when it has more bytes."""
    assert isinstance(message, response_class(api)), type(message)
    assert version in KNOWN_VERSIONS[api]
    return response_steps(message, version, is_flexible(api, version), size_bytes_max)


def _require_known(api: ApiKey, version: int) -> None:
    if version not in KNOWN_VERSIONS[api]:
        lowest, highest = KNOWN_VERSIONS[api]
        raise WireError(f"{api.name} v{version} is unknown here; known are v{lowest} to v{highest}")


def _message_class(api: ApiKey, suffix: str) -> type:
    found = getattr(import_module(f"ottla.protocol.schemas.{api.module_name}"), api.message_name + suffix)
    assert isinstance(found, type)
    return found
