"""The topics in a consumer's subscription: the only code that parses the metadata of members.

The consumer protocol's Subscription starts, in all its versions, with `int16 version | array of topic names`; strings
have an int16 length, the array an int32 count.  The rest is not read.
"""

from __future__ import annotations

from ottla.model.errors import WireError
from ottla.protocol.primitives import check_count, read_length16, read_length32, take_text

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics that a consumer subscribes to; None when the bytes are not a subscription."""
    data = memoryview(subscription)
    try:
        version, position = read_length16(data, 0)
        if version < 0:
            return None
        count, position = read_length32(data, position)
        check_count("topics", count, 2, data, position)
        topics = set()
        for _ in range(count):
            length, position = read_length16(data, position)
            topics.add(take_text(data, position, length))
            position += length
    except WireError:
        return None
    return frozenset(topics)
