"""A body is of a type that a web page cannot send to another site without permission."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from ottla.registry.request_rules import check_content_type
from ottla.security.http_access import HttpHead, HttpRefused

JSON = "application/vnd.schemaregistry.v1+json"


def status(content_type: str | None = None, *, length: str | None = "3") -> HTTPStatus | None:
    found = {b"content-type": content_type, b"content-length": length}
    headers = [(name, value.encode()) for name, value in found.items() if value is not None]
    try:
        check_content_type(HttpHead("POST", "/subjects/a", headers))
    except HttpRefused as refused:
        return refused.status
    return None


@pytest.mark.parametrize(
    "content_type",
    [
        JSON,
        f"{JSON}; charset=utf-8",
        "application/vnd.schemaregistry+json",
        "application/json",
        "Application/JSON;charset=UTF-8",
        "application/octet-stream",
    ],
)
def test_types_that_clients_send_are_taken(content_type: str) -> None:
    assert status(content_type) is None


def test_body_without_a_type_is_taken_as_by_confluents_registry() -> None:
    assert status() is None


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/plain; x=application/json", "application/x-www-form-urlencoded", "multipart/form-data"],
)
def test_types_that_a_page_sends_without_permission_are_refused(content_type: str) -> None:
    assert status(content_type) is HTTPStatus.UNSUPPORTED_MEDIA_TYPE


def test_type_of_a_request_without_a_body_does_not_matter() -> None:
    assert status("text/plain", length=None) is None
    assert status("text/plain", length="0") is None


def test_body_in_chunks_is_a_body() -> None:
    head = HttpHead("POST", "/", [(b"transfer-encoding", b"chunked"), (b"content-type", b"text/plain")])
    with pytest.raises(HttpRefused, match="415"):
        check_content_type(head)
