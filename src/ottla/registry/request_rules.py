"""The types of a body: those that a web page can send to another site only after the browser has requested permission,
which is not granted.

`Host` and `Origin`, which stop the other requests of web pages, are checked before (`security/http_access.py`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from ottla.security.http_access import HttpHead, HttpRefused

# As Confluent's registry takes them; without a type it assumes the last one, and so do we.
CONTENT_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)


def has_body(head: HttpHead) -> bool:
    return head.header(b"transfer-encoding") is not None or head.header(b"content-length") not in (None, "0")


def check_content_type(head: HttpHead) -> None:
    """Raises `HttpRefused` for a body of another type."""
    content_type = (head.header(b"content-type") or "").partition(";")[0].strip().lower()
    if has_body(head) and content_type and content_type not in CONTENT_TYPES:
        raise HttpRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send the body with Content-Type: {CONTENT_TYPES[0]}")
