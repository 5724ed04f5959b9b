"""ZooKeeper's commands of four letters: how a server is, without a session."""

from __future__ import annotations

import socket
from typing import Final

ANSWER_WITHIN_S: Final = 5.0
# `cons` of a busy server is long; nothing else comes close.
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


def ask_zookeeper(host: str, port: int, word: str, *, timeout_s: float = ANSWER_WITHIN_S) -> str:
    """The answer to `conf`, `cons`, `mntr`, `ruok` or `srvr`; empty when no server answers."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(word.encode())
            answer = bytearray()
            while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(65_536)):
                answer += piece
    except OSError:
        return ""
    return answer.decode(errors="replace")
