"""The memory of all members of all groups: bounded over all shards of a broker.

A member sends up to a mebibyte of metadata, and stays for minutes after its connection was closed; its leader may
assign it as much.  Neither a group's size nor that of a record bounds the sum over all groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from ottla.groups.commands import JoinProtocol

# Room for 40,000 members with little metadata.  Beyond it joins get COORDINATOR_NOT_AVAILABLE: clients then find their
# coordinator and try again, while GROUP_MAX_SIZE_REACHED would stop them.
MEMBER_BYTES_MAX: Final = 128 * 1024 * 1024

# A member without metadata: its objects, its deadline, and a group with its story made for it alone.  Measured: 3.3 KB
# with its texts.
BARE_MEMBER_BYTES: Final = 3_072


class MemberBytes:
    """The sum over all groups of a broker, and its bound."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class GroupBytes:
    """One group's part of the sum.  Replay adds without a check: what was acknowledged is kept."""

    __slots__ = ("_all", "held_bytes")

    def __init__(self, all_groups: MemberBytes) -> None:
        self._all: Final = all_groups
        self.held_bytes = 0

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether members may hold that much more; a negative amount always fits."""
        return more_bytes <= 0 or self._all.held_bytes + more_bytes <= MEMBER_BYTES_MAX

    def add(self, more_bytes: int) -> None:
        """Members hold that much more now; less when negative."""
        self.held_bytes += more_bytes
        self._all.held_bytes += more_bytes

    def release(self) -> None:
        """Release all bytes of the group."""
        self.add(-self.held_bytes)


def bytes_of_texts(texts: Iterable[str | None]) -> int:
    return sum(getsizeof(text) for text in texts if text is not None)


def bytes_of_protocols(protocols: Iterable[JoinProtocol]) -> int:
    """Names and metadata as objects: thousands of empty ones take memory, too."""
    return sum(getsizeof(each) + getsizeof(each.name) + getsizeof(each.metadata) for each in protocols)
