"""What the members of all groups hold in memory: bounded over all shards of a broker.

A member says up to a mebibyte of itself, and stays for minutes though its connection is closed; its leader may assign
it as much.  Neither a group's size nor that of a record bounds the sum over all groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from ottla.groups.commands import JoinProtocol

# Room for 40,000 members that say little.  Beyond it whoever joins gets COORDINATOR_NOT_AVAILABLE: clients then look
# for their coordinator and try again, while GROUP_MAX_SIZE_REACHED would end them.
MEMBER_BYTES_MAX: Final = 128 * 1024 * 1024

# A member that says nothing: its objects, its deadline, and a group with its story made for it alone.  Measured: 3.3 KB
# with its texts.
BARE_MEMBER_BYTES: Final = 3_072


class MemberBytes:
    """The sum over all groups of a broker, and the bound of it."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class GroupBytes:
    """One group's part of the sum.  Reading the log adds without asking: what was acknowledged is kept."""

    __slots__ = ("_all", "held_bytes")

    def __init__(self, all_groups: MemberBytes) -> None:
        self._all: Final = all_groups
        self.held_bytes = 0

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether members may hold so much more; less is always possible."""
        return more_bytes <= 0 or self._all.held_bytes + more_bytes <= MEMBER_BYTES_MAX

    def add(self, more_bytes: int) -> None:
        """Members hold so much more now, or less when it is negative."""
        self.held_bytes += more_bytes
        self._all.held_bytes += more_bytes

    def give_back(self) -> None:
        """The group is gone, with all that its members hold."""
        self.add(-self.held_bytes)


def bytes_of_texts(texts: Iterable[str | None]) -> int:
    return sum(getsizeof(text) for text in texts if text is not None)


def bytes_of_protocols(protocols: Iterable[JoinProtocol]) -> int:
    """Names and metadata as objects: thousands of empty ones take room, too."""
    return sum(getsizeof(each) + getsizeof(each.name) + getsizeof(each.metadata) for each in protocols)
