"""Ports for brokers that must know theirs before they start."""

from __future__ import annotations

import contextlib
import socket


def find_free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports without a listener; all are bound while they are chosen, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
