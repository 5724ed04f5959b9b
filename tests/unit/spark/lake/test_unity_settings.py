"""Where a Unity Catalog is: its properties, and the environment's."""

from __future__ import annotations

import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake.unity import UnityCatalog, columns_of


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


def test_columns_have_the_types_of_sql() -> None:
    schema = """{"type": "struct", "fields": [
        {"name": "a", "type": "decimal(10,2)", "nullable": true, "metadata": {}},
        {"name": "b", "type": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": true},
         "nullable": false, "metadata": {}}]}"""
    decimal, mapped = columns_of(schema, ("a",))
    assert (decimal["type_text"], decimal["type_name"]) == ("decimal(10,2)", "DECIMAL")
    assert (decimal["type_precision"], decimal["type_scale"], decimal["partition_index"]) == (10, 2, 0)
    assert (mapped["type_text"], mapped["type_name"], mapped["nullable"]) == ("map<string,int>", "MAP", False)
