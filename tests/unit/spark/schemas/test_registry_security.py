"""A client of a registry: its login is in each request to the registry, and nowhere else."""

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.spark.schemas.registry_reader import RegistryReader, RegistryRefused, RegistryUnreachable
from ottla.spark.schemas.registry_security import RegistrySecurity


class Registry:
    """Answers `/schemas/ids/1`, `/2` with 401 and `/3` with a redirect; keeps the headers `Authorization`."""

    def __init__(self) -> None:
        self.received: list[str | None] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.received.append(self.headers["Authorization"])
                status = {"1": 200, "2": 401, "3": 302}[self.path[-1]]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{registry.url}/schemas/ids/1")
                self.end_headers()
                self.wfile.write(json.dumps({"schema": '"string"'}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def sent_with(registry: Registry, names: dict[str, str]) -> str | None:
    reader = RegistryReader(registry.url, RegistrySecurity.of(names))
    assert reader.by_id(1).text == '"string"'
    return registry.received[-1]


def test_login_is_that_of_the_settings(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_text("bob:pass word\n")
    assert sent_with(registry, {}) is None
    assert sent_with(registry, {"bearer.auth.token": "a.b"}) == "Bearer a.b"
    alice, bob = (f"Basic {base64.b64encode(text).decode()}" for text in (b"alice:x:y", b"bob:pass word"))
    assert sent_with(registry, {"basic.auth.user.info": "alice:x:y"}) == alice
    assert sent_with(registry, {"basic.auth.user.info.file": str(path)}) == bob


def test_refused_login_is_an_error_with_what_to_do(registry: Registry) -> None:
    with pytest.raises(RegistryRefused, match="401") as refused:
        RegistryReader(registry.url).by_id(2)
    assert "basic.auth.user.info" in (refused.value.hint or "")


def test_redirect_gets_no_login(registry: Registry) -> None:
    count = len(registry.received)
    with pytest.raises(RegistryUnreachable, match="302"):
        RegistryReader(registry.url, RegistrySecurity.of({"bearer.auth.token": "a.b"})).by_id(3)
    assert len(registry.received) == count + 1


def test_secrets_are_in_no_text_and_go_to_other_processes() -> None:
    security = RegistrySecurity.of({"basic.auth.user.info": "alice:topsecret"})
    assert "topsecret" not in repr(security) + str(security)
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(RegistrySecurity.of({"basic.auth.user.info": "alice:topsecret"}))


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"basic.auth.user.inf": "a:b"}, "not a setting of a registry's client"),
        ({"basic.auth.user.info": "topsecret"}, "has no colon"),
        ({"basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "are both set"),
        ({"ssl.key.location": "/key.pem"}, "without its certificate"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(names: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        RegistrySecurity.of(names)
    assert raised.value.hint
    assert "topsecret" not in f"{raised.value} {raised.value.hint}"


def test_files_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ConfigError, match="cannot be used") as raised:
        RegistryReader("https://127.0.0.1:1", RegistrySecurity.of({"ssl.ca.location": "/no/such.pem"}))
    assert "/no/such.pem" in (raised.value.hint or "")
