"""Host names, resolved by the system."""

from __future__ import annotations

import socket


def addresses_of(host: str) -> list[str]:
    """The IP addresses of a host name on this machine; none when it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()
