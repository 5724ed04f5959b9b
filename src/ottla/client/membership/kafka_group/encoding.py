"""What members of a classic group say to each other through the broker (ConsumerProtocol), as all clients write it.

Version 0: what later ones add is for assignors that we do not offer, and every client reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Final

_VERSION: Final = struct.pack(">h", 0)
_NO_USER_DATA: Final = struct.pack(">i", -1)


def encode_subscription(topics: Collection[str]) -> bytes:
    """The topics that a member wants to read."""
    return _VERSION + struct.pack(">i", len(topics)) + b"".join(_text(topic) for topic in topics) + _NO_USER_DATA


def encode_assignment(partitions: Mapping[str, Collection[int]]) -> bytes:
    """The partitions, by topic, that a member gets."""
    topics = b"".join(
        _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    )
    return _VERSION + struct.pack(">i", len(partitions)) + topics + _NO_USER_DATA


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
