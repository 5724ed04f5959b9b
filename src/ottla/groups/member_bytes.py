"""The memory of all members of all groups: bounded over all shards of a broker.

A member sends up to a mebibyte of metadata, and stays for minutes after its connection was closed; its leader may
assign it as much.  Neither a group's size nor that of a record bounds the sum over all groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Final

from ottla.groups.commands import JoinProtocol

# Room for 40,000 members with little metadata, 20,000 of one network or group.  Beyond it joins get
# COORDINATOR_NOT_AVAILABLE: clients then find their coordinator and try again, while GROUP_MAX_SIZE_REACHED would stop
# them.
MEMBER_BYTES_MAX: Final = 128 * 1024 * 1024

# A member without metadata: its objects, its deadline, and a group with its story and its part of the shared bytes,
# made for it alone.  Measured: 3.6 KB with its texts.
BARE_MEMBER_BYTES: Final = 3_328


def bytes_of_texts(texts: Iterable[str | None]) -> int:
    return sum(getsizeof(text) for text in texts if text is not None)


def bytes_of_protocols(protocols: Iterable[JoinProtocol]) -> int:
    """Names and metadata as objects: thousands of empty ones take memory, too."""
    return sum(getsizeof(each) + getsizeof(each.name) + getsizeof(each.metadata) for each in protocols)
