"""The address given to a client: from `advertised.listeners`, else the one that the client connected to.

Returning the address that the client itself used works through port forwards, containers' names and loopback alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.model.serve_options import ServeOptions


class Advertising:
    """Addresses by the port that a connection was accepted on."""

    def __init__(self, options: ServeOptions, addresses: Sequence[tuple[str, int]]) -> None:
        by_name = {listener.name: (listener.host, listener.port) for listener in options.advertised}
        self._by_port: dict[int, tuple[str, int]] = {}
        for listener, (_, port) in zip(options.listeners, addresses, strict=True):
            told = by_name.get(listener.name)
            if told is not None:
                self._by_port[port] = told

    def address_for(self, local_address: tuple[str, int]) -> tuple[str, int]:
        """Host and port to return to a client that connected to `local_address`."""
        host, port = local_address
        # A socket for both families names an IPv4 client's address in IPv6 form (RFC 4291, 2.5.5.2).
        return self._by_port.get(port, (host.removeprefix("::ffff:"), port))
