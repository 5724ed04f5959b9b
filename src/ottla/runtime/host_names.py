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


def family_of(host: str) -> socket.AddressFamily:
    """Of a socket that is bound to this address or name."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def is_this_machine(host: str) -> bool:
    """Whether this name or IP address is the machine's: its own name, or an address of one of its interfaces.

    An address that a router translates is none of them.
    """
    return host.lower() == host_name().lower() or any(_is_own(address) for address in addresses_of(host))


def _is_own(address: str) -> bool:
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
            # Only an address of an interface can be bound; nothing is sent.
            probe.bind((address, 0))
    except OSError:
        return False
    return True
