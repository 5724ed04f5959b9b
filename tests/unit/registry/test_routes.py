from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.http_app import HttpApp, Received, Response
from ottla.registry.routes import changes_something
from tests.unit.registry.small_registry import MemoryLog, logins, optional, record, registry_over

ONE = record("a")
TWO = record("a", optional("b"))


class Client:
    """Asks an application without HTTP between."""

    def __init__(self) -> None:
        registry = registry_over(MemoryLog())
        registry.claim()
        self._app = HttpApp(registry, "http://here", logins())

    def ask(self, method: str, target: str, body: object = None, raw: bytes | None = None) -> Response:
        path, _, query = target.partition("?")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        return self._app.answer(Received(method, path, query, data, 0))

    def found(self, method: str, target: str, body: object = None) -> Any:
        response = self.ask(method, target, body)
        assert response.status == 200, response
        return json.loads(response.body)

    def refused(self, method: str, target: str, body: object = None, raw: bytes | None = None) -> tuple[int, int]:
        response = self.ask(method, target, body, raw)
        told = json.loads(response.body)
        assert told["message"]
        return response.status, told["error_code"]


@pytest.fixture
def client() -> Client:
    return Client()


def test_schema_goes_in_and_comes_out_by_id_version_and_text(client: Client) -> None:
    made = client.found("POST", "/subjects/orders/versions", {"schema": ONE})
    assert made["id"] == 1
    text = made["schema"]
    guid = made["guid"]
    assert client.found("GET", "/schemas/ids/1") == {"schema": text, "guid": guid}
    assert client.found("GET", "/schemas/ids/1?fetchMaxId=true") == {"schema": text, "guid": guid, "maxId": 1}
    assert client.ask("GET", "/schemas/ids/1/schema").body.decode() == text
    expected = {"subject": "orders", "version": 1, "id": 1, "guid": guid, "schema": text}
    assert client.found("GET", "/subjects/orders/versions/1") == expected
    assert client.found("GET", "/subjects/orders/versions/latest") == expected
    assert client.found("GET", "/subjects/orders/versions/-1") == expected
    assert client.ask("GET", "/subjects/orders/versions/1/schema").body.decode() == text
    assert client.found("POST", "/subjects/orders", {"schema": ONE, "schemaType": "AVRO", "references": []}) == expected


def test_schema_is_found_by_its_guid_as_confluents_registry_computes_it(client: Client) -> None:
    made = client.found("POST", "/subjects/orders/versions", {"schema": '"int"'})
    # The MD5 of "int" with its quotes.
    guid = "ef524ea1-b91e-7317-3d93-8ade36c1db32"
    assert made["guid"] == guid
    assert client.found("GET", f"/schemas/guids/{guid}") == {"schema": '"int"', "guid": guid}
    assert client.found("GET", f"/schemas/guids/{guid.upper()}/ids") == [{"context": ".", "id": 1}]
    assert client.refused("GET", "/schemas/guids/ef524ea1-0000-7317-3d93-8ade36c1db32") == (404, 40403)
    client.found("DELETE", "/subjects/orders")
    client.found("DELETE", "/subjects/orders?permanent=true")
    assert client.refused("GET", f"/schemas/guids/{guid}") == (404, 40403)


def test_paths_may_name_the_default_context(client: Client) -> None:
    made = client.found("POST", "/contexts/./subjects/orders/versions", {"schema": ONE})
    assert client.found("GET", "/contexts/:.:/subjects") == ["orders"]
    assert client.found("GET", "/contexts/:.:/schemas/ids/1")["schema"] == made["schema"]
    assert client.refused("GET", "/contexts/staging/subjects") == (422, 42208)
    assert client.refused("POST", "/contexts/staging/subjects/orders/versions", {"schema": ONE}) == (422, 42208)


def test_version_is_found_by_the_metadata_that_it_has(client: Client) -> None:
    client.found("POST", "/subjects/orders/versions", {"schema": ONE})
    assert client.found("GET", "/subjects/orders/metadata")["version"] == 1
    assert client.refused("GET", "/subjects/orders/metadata?key=owner&value=search") == (404, 40403)
    assert client.refused("GET", "/subjects/returns/metadata") == (404, 40401)


def test_lists_name_what_is_there(client: Client) -> None:
    for subject, text in (("orders-value", ONE), ("orders-value", TWO), ("orders-key", '"int"')):
        client.found("POST", f"/subjects/{subject}/versions", {"schema": text})
    assert client.found("GET", "/subjects") == ["orders-key", "orders-value"]
    assert client.found("GET", "/subjects?subjectPrefix=orders-v") == ["orders-value"]
    assert client.found("GET", "/subjects?offset=1&limit=5") == ["orders-value"]
    assert client.found("GET", "/subjects/orders-value/versions") == [1, 2]
    assert client.found("GET", "/schemas/ids/1/subjects") == ["orders-value"]
    assert client.found("GET", "/schemas/ids/2/versions") == [{"subject": "orders-value", "version": 2}]
    assert [each["id"] for each in client.found("GET", "/schemas?latestOnly=true")] == [3, 2]
    assert client.found("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert client.found("GET", "/contexts") == ["."]
    assert client.found("GET", "/") == {}


def test_deleted_is_listed_when_it_is_requested(client: Client) -> None:
    client.found("POST", "/subjects/orders/versions", {"schema": ONE})
    assert client.found("DELETE", "/subjects/orders/versions/latest") == 1
    assert client.found("GET", "/subjects") == []
    assert client.found("GET", "/subjects?deleted=true") == ["orders"]
    assert client.found("GET", "/subjects?deletedOnly=true") == ["orders"]
    assert client.found("GET", "/subjects/orders/versions?deleted=true") == [1]
    assert client.found("GET", "/subjects/orders/versions/1?deleted=true")["deleted"] is True
    assert client.refused("GET", "/subjects/orders/versions/1") == (404, 40401)
    assert client.refused("DELETE", "/subjects/orders") == (404, 40404)
    assert client.found("DELETE", "/subjects/orders?permanent=true") == [1]
    assert client.refused("GET", "/schemas/ids/1") == (404, 40403)


def test_subject_may_have_a_slash(client: Client) -> None:
    client.found("POST", "/subjects/shop%2Fmoney.proto/versions", {"schema": ONE})
    assert client.found("GET", "/subjects") == ["shop/money.proto"]
    assert client.found("GET", "/subjects/shop%2Fmoney.proto/versions") == [1]


def test_references_are_kept_and_returned(client: Client) -> None:
    client.found("POST", "/subjects/address/versions", {"schema": record(name="Address")})
    references = [{"name": "Address", "subject": "address", "version": 1}]
    person = record({"name": "home", "type": "Address"}, name="Person")
    made = client.found("POST", "/subjects/person/versions", {"schema": person, "references": references})
    assert client.found("GET", f"/schemas/ids/{made['id']}")["references"] == references
    assert client.found("GET", "/subjects/address/versions/1/referencedby") == [made["id"]]
    assert client.refused("DELETE", "/subjects/address/versions/1") == (422, 42206)


def test_compatibility_is_returned_with_reasons_when_they_are_requested(client: Client) -> None:
    client.found("POST", "/subjects/orders/versions", {"schema": ONE})
    bad = {"schema": record("a", "b")}
    assert client.found("POST", "/compatibility/subjects/orders/versions/latest", bad) == {"is_compatible": False}
    told = client.found("POST", "/compatibility/subjects/orders/versions?verbose=true", bad)
    assert told["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in told["messages"][0]
    assert client.found("POST", "/compatibility/subjects/orders/versions", {"schema": TWO}) == {"is_compatible": True}
    nothing = client.found("POST", "/compatibility/subjects/orders/versions?verbose=true", {"schema": "{"})
    assert nothing["is_compatible"] is False
    assert client.refused("POST", "/subjects/orders/versions", bad) == (409, 40901)


def test_settings_are_changed_and_taken_back(client: Client) -> None:
    assert client.found("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert client.found("PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert client.found("GET", "/config") == {"compatibilityLevel": "FULL"}
    assert client.refused("GET", "/config/orders") == (404, 40408)
    assert client.found("GET", "/config/orders?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert client.found("PUT", "/config/orders", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert client.found("GET", "/config/orders") == {"compatibilityLevel": "NONE"}
    assert client.found("DELETE", "/config/orders") == {"compatibilityLevel": "NONE"}
    assert client.refused("PUT", "/config", {"compatibility": "SOME"}) == (422, 42203)
    assert client.found("GET", "/mode") == {"mode": "READWRITE"}
    assert client.refused("GET", "/mode/orders") == (404, 40409)
    assert client.found("PUT", "/mode/orders", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert client.refused("POST", "/subjects/orders/versions", {"schema": ONE}) == (422, 42205)
    assert client.found("DELETE", "/mode/orders") == {"mode": "READONLY"}


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/nothing", None, (404, 404)),
        ("GET", "/subjects/a/versions/1/nothing", None, (404, 404)),
        ("PUT", "/subjects", None, (405, 405)),
        ("GET", "/subjects/a/versions", None, (404, 40401)),
        ("GET", "/subjects/a/versions/0", None, (422, 42202)),
        ("GET", "/subjects/a/versions/first", None, (422, 42202)),
        ("GET", "/subjects/a/versions/99999999999999999999", None, (422, 42202)),
        ("GET", "/schemas/ids/7", None, (404, 40403)),
        ("GET", "/schemas/ids/seven", None, (404, 40403)),
        ("GET", "/schemas/ids/" + "9" * 5000, None, (404, 40403)),
        ("GET", "/subjects?limit=many", None, (422, 42202)),
        ("POST", "/subjects/a/versions", {}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": 7}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "id": 7}, (422, 42205)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "metadata": {"tags": {}}}, (422, 42205)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "ruleSet": {"domainRules": []}}, (422, 42205)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "references": "b"}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "references": [{"name": "b"}]}, (422, 42201)),
        ("POST", "/subjects/:.ctx:a/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/subjects/a/versions/1/tags", {"tagsToAdd": []}, (422, 42205)),
        ("GET", "/dek-registry/v1/keks", None, (422, 42205)),
        ("GET", "/exporters", None, (422, 42205)),
        ("GET", "/associations/resources/-/orders", None, (404, 404)),
    ],
)
def test_request_that_cannot_be_served_says_why(
    client: Client, method: str, target: str, body: object, expected: tuple[int, int]
) -> None:
    assert client.refused(method, target, body) == expected


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[]", b"7", b"[" * 100_000])
def test_body_that_is_no_object_is_refused(client: Client, raw: bytes) -> None:
    assert client.refused("POST", "/subjects/a/versions", raw=raw) == (422, 42201)


def test_fields_that_clients_send_empty_are_no_reason_to_refuse(client: Client) -> None:
    body = {"schema": '"int"', "metadata": None, "ruleSet": None, "id": -1, "version": 0, "references": None}
    assert client.found("POST", "/subjects/a/versions", body)["id"] == 1


@pytest.mark.parametrize(
    ("method", "path", "changes"),
    [
        ("GET", "/subjects", False),
        ("GET", "/no/such/path", False),
        ("POST", "/subjects/orders", False),
        ("POST", "/compatibility/subjects/orders/versions/latest", False),
        ("POST", "/compatibility/subjects/orders/versions", False),
        ("POST", "/subjects/orders/versions", True),
        ("POST", "/subjects/orders%2Fversions", False),
        ("DELETE", "/subjects/orders", True),
        ("DELETE", "/subjects/orders/versions/1", True),
        ("PUT", "/config", True),
        ("PUT", "/mode/orders", True),
        ("DELETE", "/config/orders", True),
        ("POST", "/no/such/path", True),
        ("POST", "/contexts/./subjects/orders", False),
        ("POST", "/contexts/./subjects/orders/versions", True),
        ("POST", "/contexts/staging/subjects/orders", True),
        ("PATCH", "/subjects", True),
    ],
)
def test_requests_that_change_something_are_known_by_method_and_path(method: str, path: str, changes: bool) -> None:
    assert changes_something(method, path) is changes
