"""Delta tables by their names in a Unity Catalog, by its REST API: Databricks', or the open-source server's.

The catalog has a table's place and lends credentials for its files.  A load commits to the table's own log, so the
table must be an external one: commits to a managed table are the catalog's.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pyarrow as pa

from ottla.model.nearest import nearest_name
from ottla.spark.errors import LakeError
from ottla.spark.lake.delta_table import DeltaLake
from ottla.spark.lake.target import (
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    LakeTarget,
    parse_target,
    s3_settings,
)

ANSWERS_WITHIN_S: Final = 30.0
_API: Final = "/api/2.1/unity-catalog"
_PROPERTIES: Final = ("type", "uri", "token")
# Where a property is not given.
_URI_VARIABLE: Final = "DATABRICKS_HOST"
_TOKEN_VARIABLE: Final = "DATABRICKS_TOKEN"
_DELTA: Final = "DELTA"
_EXTERNAL: Final = "EXTERNAL"
_LENT: Final = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "session_token": SESSION_TOKEN}
# A type of a Delta schema, in SQL and in the catalog's list of columns.
_TYPES: Final = {
    "binary": ("binary", "BINARY"),
    "boolean": ("boolean", "BOOLEAN"),
    "byte": ("tinyint", "BYTE"),
    "date": ("date", "DATE"),
    "double": ("double", "DOUBLE"),
    "float": ("float", "FLOAT"),
    "integer": ("int", "INT"),
    "long": ("bigint", "LONG"),
    "short": ("smallint", "SHORT"),
    "string": ("string", "STRING"),
    "timestamp": ("timestamp", "TIMESTAMP"),
    "timestamp_ntz": ("timestamp_ntz", "TIMESTAMP_NTZ"),
}


class _Refused(LakeError):
    """`status` of HTTP."""

    def __init__(self, message: str, status: int, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


class UnityCatalog:
    """`properties`: `uri` and `token`; those that are not given are the environment's, as Databricks' tools have it.

    Raises `LakeError`.
    """

    def __init__(self, properties: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        for name in properties:
            if name not in _PROPERTIES:
                near = nearest_name(name, _PROPERTIES)
                hint = f"did you mean {near}?" if near else "it has uri and token"
                raise LakeError(f"the Unity Catalog has no property {name!r}", hint=hint)
        uri = properties.get("uri") or environment.get(_URI_VARIABLE, "")
        if uri and "://" not in uri:
            uri = f"https://{uri}"
        parts = urlsplit(uri)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise LakeError(
                f"the Unity Catalog has the address {uri!r}", hint=f"give uri=https://HOST, or set {_URI_VARIABLE}"
            )
        self.uri: Final = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_API)}"
        self._token: Final = _token(properties.get("token") or environment.get(_TOKEN_VARIABLE, ""))
        self._opener = urllib.request.build_opener(_NoRedirects())

    def found(self, table: str) -> Mapping[str, Any] | None:
        """A table as the catalog describes it; None: there is none."""
        try:
            return self._answer("GET", f"/tables/{quote(table, safe='.')}")
        except _Refused as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def lent_credentials(self, table_id: str) -> dict[str, str]:
        """Settings of S3 with which the table's files are read and written, for an hour or so."""
        answer = self._answer("POST", "/temporary-table-credentials", {"table_id": table_id, "operation": "READ_WRITE"})
        lent = answer.get("aws_temp_credentials") or {}
        return {setting: lent[name] for name, setting in _LENT.items() if lent.get(name)}

    def register(self, table: str, location: str, columns: Sequence[Mapping[str, object]]) -> None:
        """An external Delta table; one that another load registered meanwhile stays."""
        catalog, schema, name = table.split(".")
        wanted = {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": _EXTERNAL,
            "data_source_format": _DELTA,
            "storage_location": location,
            "columns": columns,
        }
        try:
            self._answer("POST", "/tables", wanted)
        except _Refused:
            if self.found(table) is None:
                raise

    def _answer(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.uri}{_API}{path}", data, headers, method=method)
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=ANSWERS_WITHIN_S) as answer:
                found: Mapping[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(10_000)) from None
        except (OSError, http.client.HTTPException) as error:
            raise LakeError(
                f"the Unity Catalog at {self.uri} does not answer: {error}", hint="is its address right (uri=)?"
            ) from error
        except ValueError:
            # Of Python's HTTP client: its text may quote a header, as the token's.
            raise LakeError(
                f"the Unity Catalog at {self.uri} does not answer in JSON", hint="is its address right (uri=)?"
            ) from None

    def _refusal(self, status: int, body: bytes) -> _Refused:
        try:
            reason = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            reason = body.decode(errors="replace")
        hint = None
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            hint = f"give token= or {_TOKEN_VARIABLE}, of a user with the rights MODIFY and EXTERNAL USE SCHEMA"
        return _Refused(f"the Unity Catalog at {self.uri} refuses: {status} {reason}", status, hint)


class UnityLake(DeltaLake):
    """A Delta table whose place the catalog has.  Each refresh renews the credentials."""

    def __init__(
        self,
        table: str,
        catalog: UnityCatalog,
        location: LakeTarget | None,
        storage: Mapping[str, str],
        first_schema: pa.Schema | None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Without `first_schema` the table must be there; `location` is the place of one that is not."""
        if len(table.split(".")) != 3 or not all(table.split(".")):
            raise LakeError(f"{table!r} names no table of a Unity Catalog", hint="write catalog.schema.table")
        self._full_name = table
        self._catalog = catalog
        self._given = location
        self._settings = s3_settings(storage, {}) if location is None else location.settings
        found = catalog.found(table)
        if found is not None:
            super().__init__(self._place(found), first_schema, partition_by)
            return
        if first_schema is None or location is None:
            raise LakeError(
                f"the Unity Catalog has no table {table}",
                hint="create it there (CREATE TABLE ... USING DELTA LOCATION '...'), or give its place (--target)",
            )
        super().__init__(location, first_schema, partition_by)
        url = f"file://{location.url}" if location.is_local else location.url
        catalog.register(table, url, columns_of(self._table.schema().to_json(), self.partition_by))

    @property
    def name(self) -> str:
        return self._full_name

    def refresh(self) -> None:
        found = self._catalog.found(self._full_name)
        if found is None:
            raise LakeError(f"the Unity Catalog has no table {self._full_name} any more")
        self._target = self._place(found)
        super().refresh()

    def _place(self, found: Mapping[str, Any]) -> LakeTarget:
        kind, of_format = found.get("table_type"), found.get("data_source_format")
        if of_format != _DELTA:
            raise LakeError(
                f"{self._full_name} is no Delta table: {of_format}",
                hint="a table of Iceberg is loaded into by the catalog's Iceberg REST (type=rest)",
            )
        if kind != _EXTERNAL:
            raise LakeError(
                f"{self._full_name} is a table of the type {kind}, and only the catalog commits to it",
                hint="load into an external table: CREATE TABLE ... USING DELTA LOCATION '...'",
            )
        place = parse_target(found["storage_location"])
        if self._given is not None and place.url != self._given.url:
            raise LakeError(
                f"the table {self._full_name} is at {place.url}, and not at {self._given.url}",
                hint="give the table's own place as the target, or none",
            )
        if not place.is_s3:
            return place
        lent = {} if ACCESS_KEY in self._settings else self._catalog.lent_credentials(found["table_id"])
        return parse_target(place.url, {**lent, **self._settings})


def _token(given: str) -> str:
    """Without the line's end of a file that it was read from.  Raises `LakeError`, whose text does not have it."""
    token = given.strip()
    if not (token.isascii() and token.isprintable()):
        raise LakeError(
            "the token of the Unity Catalog has characters that no header can have",
            hint=f"give token= or {_TOKEN_VARIABLE} in one line of ASCII",
        )
    return token


def columns_of(schema: str, partition_by: Sequence[str]) -> list[dict[str, object]]:
    """Of a Delta schema in JSON, as the catalog lists them."""
    columns: list[dict[str, object]] = []
    for position, field in enumerate(json.loads(schema)["fields"]):
        kind = field["type"]
        column: dict[str, object] = {
            "name": field["name"],
            "type_text": _type_text(kind),
            "type_name": _type_name(kind),
            "type_json": json.dumps(field),
            "nullable": field["nullable"],
            "position": position,
        }
        if field["name"] in partition_by:
            column["partition_index"] = partition_by.index(field["name"])
        if isinstance(kind, str) and kind.startswith("decimal"):
            precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
            column |= {"type_precision": int(precision), "type_scale": int(scale)}
        columns.append(column)
    return columns


def _type_name(kind: Any) -> str:
    if isinstance(kind, str):
        return _TYPES[kind][1] if kind in _TYPES else "DECIMAL"
    return str(kind["type"]).upper()


def _type_text(kind: Any) -> str:
    if isinstance(kind, str):
        return _TYPES[kind][0] if kind in _TYPES else kind
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])},{_type_text(kind['valueType'])}>"
    parts = [f"{each['name']}:{_type_text(each['type'])}" for each in kind["fields"]]
    return f"struct<{','.join(parts)}>"
