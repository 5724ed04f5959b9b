"""Memory that all groups of a broker share, and how much of it each client network and each group holds.

A client chooses its ids and its groups, but not the address that it connects from.  So each network, and each group,
may hold at most as much as is still free after that: one alone gets half of all, two get a third each, and a client of
another network finds room however many groups the others made.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

# An IPv6 client may choose any address of its network.
_IPV6_HOST_BITS: Final = 64


class RefusedGrowth(NamedTuple):
    """For the log: the group and the client that found no room."""

    group_id: str
    client_host: str


class SharedBytes:
    """The sum over all groups of a broker, its limit, and the parts of the networks."""

    __slots__ = ("_by_network", "held_bytes", "last_refused", "limit_bytes", "refused_count")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.refused_count = 0
        self.last_refused: RefusedGrowth | None = None
        self._by_network: Final[dict[str, int]] = {}

    def held_by(self, network: str) -> int:
        return self._by_network.get(network, 0)

    @property
    def largest_network(self) -> tuple[str, int]:
        """The network that holds most, and how much; an empty name when no network is known."""
        return max(self._by_network.items(), key=lambda item: item[1], default=("", 0))

    def has_room_for(self, more_bytes: int, network: str, group_bytes: int) -> bool:
        """Whether a client of `network` may add to a group that holds `group_bytes`; less always fits."""
        if more_bytes <= 0:
            return True
        free_bytes = self.limit_bytes - self.held_bytes - more_bytes
        return max(group_bytes, self.held_by(network)) + more_bytes <= free_bytes

    def note_refused(self, group_id: str, client_host: str) -> None:
        self.refused_count += 1
        self.last_refused = RefusedGrowth(group_id, client_host)

    def add(self, more_bytes: int, network: str | None) -> None:
        """Count more, or less when negative.  None: the log does not name the client.

        Not checked: replay keeps what was acknowledged.
        """
        self.held_bytes += more_bytes
        if network is not None:
            network_bytes = self._by_network.get(network, 0) + more_bytes
            if network_bytes:
                self._by_network[network] = network_bytes
            else:
                del self._by_network[network]


class SharedPart:
    """What one owner, a group or a shard, holds of the shared bytes, by network, so that it can release all of it."""

    __slots__ = ("_all", "_by_network", "held_bytes")

    def __init__(self, all_bytes: SharedBytes) -> None:
        self._all: Final = all_bytes
        self._by_network: Final[dict[str | None, int]] = {}
        self.held_bytes = 0

    def has_room_for(self, more_bytes: int, network: str) -> bool:
        return self._all.has_room_for(more_bytes, network, self.held_bytes)

    def add(self, more_bytes: int, network: str | None) -> None:
        self.held_bytes += more_bytes
        self._by_network[network] = self._by_network.get(network, 0) + more_bytes
        self._all.add(more_bytes, network)

    def release(self) -> None:
        """Release everything."""
        for network, held_bytes in self._by_network.items():
            if held_bytes:
                self._all.add(-held_bytes, network)
        self._by_network.clear()
        self.held_bytes = 0


@lru_cache(maxsize=1_024)
def network_of(client_host: str) -> str:
    """The network of a member's host as the log has it: `/192.0.2.1` itself, of IPv6 the first 64 bits."""
    host = client_host.removeprefix("/")
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)}/64"
