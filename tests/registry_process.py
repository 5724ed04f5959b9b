"""`ottla registry serve` as a process, and requests to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Server:
    """`ottla registry serve`, a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self.url = ""
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)
            if "registry.ready" in line:
                facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
                self.url = f"{facts['scheme']}://{facts['host']}:{facts['port']}"
                # A pipe without a reader stops the registry's event loop at the line that fills it.
                self.reader = threading.Thread(target=self.log.extend, args=(process.stderr,), daemon=True)
                self.reader.start()
                return
        raise AssertionError(f"the registry did not start:\n{''.join(self.log)}")


@contextmanager
def serving(broker_address: str, *flags: str) -> Iterator[Server]:
    words = [
        "registry",
        "serve",
        "--bootstrap-server",
        broker_address,
        "--listen",
        "127.0.0.1:0",
        "--until-eof",
        *flags,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        server = Server(process)
        try:
            yield server
        finally:
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
            # It ends with the pipe, which must not be closed under it.
            server.reader.join(timeout=60)


def ask(method: str, url: str, body: object = None, raw: bytes | None = None) -> tuple[int, Any]:
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": CONTENT_TYPE})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
