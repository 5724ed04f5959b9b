"""A catalog that speaks Iceberg's REST protocol, over pyiceberg's catalog in a SQLite file: `with RestCatalog(path)`.

It has what loads call: namespaces, tables, commits.  Requests are served one after the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

Json = Any

_STATUSES: Final[dict[type[Exception], int]] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class RestCatalog:
    """`token`: clients must send it.  `lent`: settings of files that each answer about a table has, as credentials."""

    def __init__(
        self, database: Path, warehouse: str, token: str | None = None, lent: Mapping[str, str] | None = None
    ) -> None:
        self._lent: Final = {} if lent is None else lent
        self._catalog: Final = SqlCatalog("server", uri=f"sqlite:///{database}", warehouse=warehouse, **self._lent)
        self._token: Final = token
        self._lock: Final = threading.Lock()
        # Method and first words of the path of each request.
        self.requests: Final[list[str]] = []
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                catalog.answer(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Tests look at `requests`."""

        self._server: Final = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread: Final = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def properties(self) -> dict[str, str]:
        """For clients."""
        return {"type": "rest", "uri": self.uri, **({} if self._token is None else {"token": self._token})}

    def __enter__(self) -> RestCatalog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._catalog.close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = [unquote(part) for part in urlsplit(request.path).path.strip("/").split("/")][1:]
        self.requests.append(f"{request.command} {'/'.join(path)}")
        try:
            if self._token is not None and request.headers.get("Authorization") != f"Bearer {self._token}":
                status, found = 401, _error("NotAuthorizedException", "who are you?", 401)
            else:
                with self._lock:
                    status, found = 200, self._found(request.command, path, body)
        except tuple(_STATUSES) as error:
            status = _STATUSES[type(error)]
            found = _error(type(error).__name__, str(error), status)
        text = b"" if request.command == "HEAD" else json.dumps(found).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def _found(self, method: str, path: Sequence[str], body: bytes) -> Json:
        read = method in ("GET", "HEAD")
        match path:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces"] if not read:
                given = json.loads(body)
                self._catalog.create_namespace(tuple(given["namespace"]), given.get("properties") or {})
                return given
            case ["namespaces", namespace] if read:
                return {"namespace": [namespace], "properties": self._catalog.load_namespace_properties(namespace)}
            case ["namespaces", namespace, "tables"] if not read:
                # pyiceberg's model wants a location; the protocol lets the catalog choose one.
                given = {"location": None, **json.loads(body)}
                return self._created(namespace, CreateTableRequest.model_validate(given))
            case ["namespaces", namespace, "tables", table] if read:
                return self._loaded(self._catalog.load_table((namespace, table)))
            case ["namespaces", namespace, "tables", table]:
                wanted = CommitTableRequest.model_validate_json(body)
                now = self._catalog.load_table((namespace, table))
                done = self._catalog.commit_table(now, wanted.requirements, wanted.updates)
                return json.loads(done.model_dump_json(by_alias=True))
            case _:
                raise NoSuchNamespaceError(f"no such path: {method} {path}")

    def _created(self, namespace: str, wanted: CreateTableRequest) -> Json:
        table = self._catalog.create_table(
            (namespace, wanted.name),
            wanted.table_schema,
            location=wanted.location,
            partition_spec=wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            sort_order=wanted.write_order or UNSORTED_SORT_ORDER,
            properties=wanted.properties,
        )
        return self._loaded(table)

    def _loaded(self, table: Table) -> Json:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
            "config": dict(self._lent),
        }


def _error(kind: str, message: str, code: int) -> Json:
    return {"error": {"message": message, "type": kind, "code": code}}
