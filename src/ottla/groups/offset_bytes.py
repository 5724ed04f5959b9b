"""The memory of all committed offsets of all groups: bounded over all shards of a broker.

Any client may commit for any group that it names, and offsets without a group expire after a week only.  Measured: 117
bytes for a partition without metadata, 1.7 KB for a group with its first one, and its id three times; metadata has
4,096 bytes at most (offset.metadata.max.bytes).
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

# Two million partitions, or 150,000 groups with one each; half of it for one network or group.  Beyond it new groups
# and partitions cannot be committed (INVALID_COMMIT_OFFSET_SIZE), nor more metadata; what is there can be committed
# again.
OFFSET_BYTES_MAX: Final = 256 * 1024 * 1024

# Its place in a topic's dictionary, with the value's own bytes.
_PARTITION_BYTES: Final = 60
# A topic of a group: its dictionary, and the key that leads to it.
_TOPIC_BYTES: Final = 350
# A group without members.
_GROUP_BYTES: Final = 1_250
_COPIES_OF_ID: Final = 3


def bytes_of_value(value: bytes) -> int:
    """Of one committed offset."""
    return _PARTITION_BYTES + getsizeof(value)


def bytes_of_topic(topic: bytes) -> int:
    """Of a topic that a group has committed, without its partitions."""
    return _TOPIC_BYTES + len(topic)


def bytes_of_group(group_id: bytes) -> int:
    """Of a group that has committed, without its topics."""
    return _GROUP_BYTES + _COPIES_OF_ID * len(group_id)
