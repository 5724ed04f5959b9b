"""Host names, asked of the system."""

from __future__ import annotations

import socket


def addresses_of(host: str) -> list[str]:
    """The IP addresses that a host name stands for here; none when it stands for nothing."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
