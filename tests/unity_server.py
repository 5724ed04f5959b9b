"""A server with the part of Unity Catalog's REST API that loads call: `with UnityServer() as unity`.

Paths, fields and errors are those of its public OpenAPI description (unitycatalog/unitycatalog, `api/all.yaml`).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

_PREFIX: Final = "/api/2.1/unity-catalog"
_REQUIRED: Final = {"name", "catalog_name", "schema_name", "table_type", "columns"}

Json = dict[str, Any]


class UnityServer:
    """`token`: clients must send it.  `lent`: the credentials of S3 that a table's reader and writer gets."""

    def __init__(self, token: str = "secret", lent: Mapping[str, str] | None = None) -> None:
        self.token: Final = token
        self.lent: Final = dict(lent or {})
        # By the full name.
        self.tables: Final[dict[str, Json]] = {}
        self.requests: Final[list[str]] = []
        self._lock: Final = threading.Lock()
        unity = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                unity.answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Tests look at `requests`."""

        self._server: Final = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread: Final = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def properties(self) -> dict[str, str]:
        return {"uri": self.uri, "token": self.token}

    def __enter__(self) -> UnityServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, full_name: str, location: str, **more: str) -> None:
        catalog, schema, name = full_name.split(".")
        self.tables[full_name] = {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": location,
            "table_id": str(uuid.uuid4()),
            **more,
        }

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = request.path.removeprefix(_PREFIX)
        self.requests.append(f"{request.command} {path}")
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            status, found = 401, _error("UNAUTHENTICATED", "Invalid access token.")
        else:
            with self._lock:
                status, found = self._found(request.command, path, json.loads(body) if body else {})
        text = json.dumps(found).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def _found(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        match method, path.strip("/").split("/"):
            case "GET", ["tables", full_name]:
                if full_name in self.tables:
                    return 200, self.tables[full_name]
                return 404, _error("TABLE_NOT_FOUND", f"Table not found: {full_name}")
            case "POST", ["tables"]:
                if not body.keys() >= _REQUIRED:
                    return 400, _error("INVALID_ARGUMENT", f"required: {sorted(_REQUIRED)}")
                full_name = f"{body['catalog_name']}.{body['schema_name']}.{body['name']}"
                if full_name in self.tables:
                    return 400, _error("TABLE_ALREADY_EXISTS", f"Table already exists: {full_name}")
                self.tables[full_name] = {**body, "table_id": str(uuid.uuid4())}
                return 200, self.tables[full_name]
            case "POST", ["temporary-table-credentials"]:
                if body.get("operation") != "READ_WRITE" or all(
                    table["table_id"] != body["table_id"] for table in self.tables.values()
                ):
                    return 400, _error("INVALID_ARGUMENT", "no such table, or operation")
                return 200, {"aws_temp_credentials": dict(self.lent), "expiration_time": 0}
        return 404, _error("NOT_FOUND", f"no such path: {method} {path}")


def _error(code: str, message: str) -> Json:
    return {"error_code": code, "message": message, "details": []}
