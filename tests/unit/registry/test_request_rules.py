"""Programs are served; requests that a web page makes a browser send are not."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from ottla.registry.request_rules import RequestRules

RULES = RequestRules(["registry.internal", "MYHOST"])
JSON = "application/vnd.schemaregistry.v1+json"


def status(*, has_body: bool = True, rules: RequestRules = RULES, **headers: str) -> HTTPStatus | None:
    given = {"host": "localhost:8081", **headers}
    found = {name.replace("_", "-").encode(): value.encode() for name, value in given.items()}
    refusal = rules.refusal(found, has_body=has_body)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8081",
        "LOCALHOST:1",
        "localhost.:8081",
        "app.localhost",
        "127.0.0.1:8081",
        "[::1]:8081",
        "10.1.2.3",
        "registry.internal:80",
        "myhost",
        "",
    ],
)
def test_names_of_this_registry_and_addresses_are_served(host: str) -> None:
    assert status(host=host, content_type=JSON) is None


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:8081",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "[::1",
        "a b",
    ],
)
def test_name_that_may_be_rebound_is_refused_for_every_method(host: str) -> None:
    assert status(host=host, content_type=JSON) is HTTPStatus.FORBIDDEN
    assert status(host=host, has_body=False) is HTTPStatus.FORBIDDEN


def test_any_name_is_served_where_that_was_set() -> None:
    assert status(host="what.ever", content_type=JSON, rules=RequestRules(["*"])) is None


@pytest.mark.parametrize(
    "origin", ["https://attacker.example", "http://localhost:3000", "https://localhost:8081", "null"]
)
def test_page_of_another_origin_is_refused(origin: str) -> None:
    assert status(origin=origin, content_type=JSON) is HTTPStatus.FORBIDDEN
    assert status(origin=origin, has_body=False) is HTTPStatus.FORBIDDEN


def test_page_of_the_registry_itself_is_served() -> None:
    assert status(origin="http://localhost:8081", content_type=JSON) is None


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
    assert status(content_type=content_type) is None


def test_body_without_a_type_is_taken_as_by_confluents_registry() -> None:
    assert status() is None


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/plain; x=application/json", "application/x-www-form-urlencoded", "multipart/form-data"],
)
def test_types_that_a_page_sends_without_asking_are_refused(content_type: str) -> None:
    assert status(content_type=content_type) is HTTPStatus.UNSUPPORTED_MEDIA_TYPE


def test_type_of_a_request_without_a_body_does_not_matter() -> None:
    assert status(content_type="text/plain", has_body=False) is None
