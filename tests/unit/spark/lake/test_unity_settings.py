"""Where a Unity Catalog is: its properties, and the environment's."""

from __future__ import annotations

import traceback
from urllib.request import OpenerDirector

import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake.unity import UnityCatalog, columns_of

# Lines of source code, which a traceback shows, have the name.
SECRET = "qW3rTy"


@pytest.mark.parametrize(
    "uri",
    ["https://dbc-1.example", "https://dbc-1.example/", "dbc-1.example", "https://dbc-1.example/api/2.1/unity-catalog"],
)
def test_an_address_is_taken_as_databricks_writes_it(uri: str) -> None:
    assert UnityCatalog({"uri": uri}, {}).uri == "https://dbc-1.example"
    assert UnityCatalog({}, {"DATABRICKS_HOST": uri}).uri == "https://dbc-1.example"


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({}, r"has the address ''; give uri=https://HOST, or set DATABRICKS_HOST"),
        ({"uri": "ftp://host"}, r"has the address 'ftp://host'"),
        ({"uri": "https://host", "tokn": "x"}, r"has no property 'tokn'; did you mean token\?"),
        ({"uri": "https://host", "warehouse": "x"}, r"has no property 'warehouse'; it has uri and token"),
    ],
)
def test_wrong_properties_are_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(LakeError, match=problem):
        UnityCatalog(properties, {})


@pytest.mark.parametrize("token", [f"{SECRET}\n1", f"{SECRET}\x00", f"{SECRET}\u00e9"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(token: str) -> None:
    for properties, environment in (({"token": token}, {}), ({}, {"DATABRICKS_TOKEN": token})):
        with pytest.raises(LakeError, match="has characters that no header can have") as refused:
            UnityCatalog({"uri": "https://host", **properties}, environment)
        assert SECRET not in str(refused.value)


def test_the_end_of_a_tokens_line_is_not_of_it() -> None:
    # It comes as far as the connection.
    with pytest.raises(LakeError, match=r"does not answer: .*refused"):
        UnityCatalog({"uri": "http://127.0.0.1:1", "token": f"{SECRET}\n"}, {}).found("main.lake.clicks")


def test_an_error_of_the_http_client_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError(f"Invalid header value b'Bearer {SECRET}'")

    monkeypatch.setattr(OpenerDirector, "open", refuse)
    with pytest.raises(LakeError, match="does not answer in JSON") as failed:
        UnityCatalog({"uri": "https://host", "token": SECRET}, {}).found("main.lake.clicks")
    assert SECRET not in "".join(traceback.format_exception(failed.value))


def test_columns_have_the_types_of_sql() -> None:
    schema = """{"type": "struct", "fields": [
        {"name": "a", "type": "decimal(10,2)", "nullable": true, "metadata": {}},
        {"name": "b", "type": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": true},
         "nullable": false, "metadata": {}}]}"""
    decimal, mapped = columns_of(schema, ("a",))
    assert (decimal["type_text"], decimal["type_name"]) == ("decimal(10,2)", "DECIMAL")
    assert (decimal["type_precision"], decimal["type_scale"], decimal["partition_index"]) == (10, 2, 0)
    assert (mapped["type_text"], mapped["type_name"], mapped["nullable"]) == ("map<string,int>", "MAP", False)
