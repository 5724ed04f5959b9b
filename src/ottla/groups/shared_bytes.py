"""Memory that all groups of a broker share, and how much of it each client network and each group holds.

A client chooses its ids and its groups, but not the address that it connects from.  So each network, and each group,
may hold at most as much as is still free after that: one alone gets half of all, two get a third each, and a client of
another network finds room however many groups the others made.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from sys import getsizeof
from typing import Final, NamedTuple

from ottla.groups.commands import JoinProtocol

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


# The memory of all members of all groups: bounded over all shards of a broker.
#
# A member sends up to a mebibyte of metadata, and stays for minutes after its connection was closed; its leader may
# assign it as much.  Neither a group's size nor that of a record bounds the sum over all groups.

# Room for 40,000 members with little metadata, 20,000 of one network or group.  Beyond it joins get
# COORDINATOR_NOT_AVAILABLE: clients then find their coordinator and try again, while GROUP_MAX_SIZE_REACHED would stop
# them.
MEMBER_BYTES_MAX: Final = 128 * 1024 * 1024

# A member without metadata: its objects, its deadline, and a group created for it alone, with its transition history
# and its part of the shared bytes.  Measured: 3.6 KB with its texts.
BARE_MEMBER_BYTES: Final = 3_328


def bytes_of_texts(texts: Iterable[str | None]) -> int:
    return sum(getsizeof(text) for text in texts if text is not None)


def bytes_of_protocols(protocols: Iterable[JoinProtocol]) -> int:
    """Names and metadata as objects: thousands of empty ones take memory, too."""
    return sum(getsizeof(each) + getsizeof(each.name) + getsizeof(each.metadata) for each in protocols)


# The memory of all committed offsets of all groups: bounded over all shards of a broker.
#
# Any client may commit for any group id, and offsets without a group expire only after a week.  Measured: 117 bytes for
# a partition without metadata, 1.7 KB for a group with its first one (its id is stored three times); metadata has 4,096
# bytes at most (offset.metadata.max.bytes).

# Two million partitions, or 150,000 groups with one each; half of it for one network or group.  Beyond it new groups
# and partitions cannot be committed (INVALID_COMMIT_OFFSET_SIZE), nor more metadata; existing offsets can be committed
# again.
OFFSET_BYTES_MAX: Final = 256 * 1024 * 1024

# Its place in a topic's dictionary, with the value's own bytes.
_PARTITION_BYTES: Final = 60
# An offset that is pending in a transaction: its place by producer and by group, and its object.  Measured: 710 bytes
# with key and value, 670 more for the first one of a group.
_PENDING_BYTES: Final = 600
_PENDING_GROUP_BYTES: Final = 670
# A topic of a group: its dictionary, and the key that leads to it.
_TOPIC_BYTES: Final = 350
# A group without members.
_GROUP_BYTES: Final = 1_250
_COPIES_OF_ID: Final = 3


def bytes_of_value(value: bytes) -> int:
    """Of one committed offset."""
    return _PARTITION_BYTES + getsizeof(value)


def bytes_of_pending(key: bytes, value: bytes) -> int:
    """Of one offset that is committed in an open transaction."""
    return _PENDING_BYTES + getsizeof(key) + getsizeof(value)


def bytes_of_pending_group(group_id: str) -> int:
    """Of a group with pending offsets, without them."""
    return _PENDING_GROUP_BYTES + bytes_of_group(group_id.encode())


def bytes_of_topic(topic: bytes) -> int:
    """Of a topic that a group has committed, without its partitions."""
    return _TOPIC_BYTES + len(topic)


def bytes_of_group(group_id: bytes) -> int:
    """Of a group that has committed, without its topics."""
    return _GROUP_BYTES + _COPIES_OF_ID * len(group_id)
