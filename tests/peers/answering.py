"""Whether a broker answers yet: two constant requests are enough."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Final

POLL_INTERVAL_S: Final = 0.005
ANSWER_BYTES_MAX: Final = 1 << 20

_CLIENT_ID: Final = struct.pack(">h", 5) + b"ready"
# ApiVersions v0 has no body; Metadata v1 with an empty array of topics requests the brokers only.
_API_VERSIONS: Final = struct.pack(">hhi", 18, 0, 1) + _CLIENT_ID
_METADATA: Final = struct.pack(">hhi", 3, 1, 2) + _CLIENT_ID + struct.pack(">i", 0)


class NotAnswering(RuntimeError):
    """The process ended, or did not answer in time."""


def wait_until_answering(host: str, port: int, process: subprocess.Popen[bytes], timeout_s: float) -> float:
    """Wait for the first right ApiVersions answer and return the time.monotonic() of its arrival."""
    return _wait(host, port, process, timeout_s, _answers_api_versions)


def wait_until_serving(host: str, port: int, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until Metadata lists a broker too: only then can topics be created and led."""
    _wait(host, port, process, timeout_s, _lists_a_broker)


def _wait(
    host: str,
    port: int,
    process: subprocess.Popen[bytes],
    timeout_s: float,
    is_ready: Callable[[socket.socket], bool],
) -> float:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotAnswering(f"the broker ended with status {process.returncode} before it answered")
        try:
            with socket.create_connection((host, port), timeout=5) as connection:
                if is_ready(connection):
                    return time.monotonic()
        except OSError:
            pass  # no process listens yet, or the listener does not accept yet: wait for that
        time.sleep(POLL_INTERVAL_S)
    raise NotAnswering(f"the broker did not answer on {host}:{port} within {timeout_s:g} s")


def _answers_api_versions(connection: socket.socket) -> bool:
    answer = _ask(connection, _API_VERSIONS)
    error_code, api_count = struct.unpack_from(">hi", answer, 4)
    return bool(error_code == 0 and api_count > 0)


def _lists_a_broker(connection: socket.socket) -> bool:
    answer = _ask(connection, _METADATA)
    return bool(struct.unpack_from(">i", answer, 4)[0] > 0)


def _ask(connection: socket.socket, request: bytes) -> bytes:
    """Send one framed request and return its answer from the correlation id on.  A broken answer is an OSError."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
    if not 10 <= size_bytes <= ANSWER_BYTES_MAX:
        raise OSError(f"the answer claims {size_bytes} bytes")
    answer = _receive(connection, size_bytes)
    if answer[:4] != request[4:8]:
        raise OSError("the answer has another correlation id")
    return answer


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        part = connection.recv(size_bytes - len(received))
        if not part:
            raise OSError("the connection was closed")
        received += part
    return received
