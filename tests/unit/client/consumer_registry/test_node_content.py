"""What a group's nodes hold is read as it was written, and refused where it is not ours."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.client.consumer_registry.group_nodes import (
    ConsumerNode,
    OffsetContent,
    decode_consumer,
    decode_offset,
    decode_owner,
    encode_consumer,
    encode_offset,
    encode_owner,
)
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.coordination.node_json import NodeDamaged

TOPIC_ID = UUID(int=77)
BY_NAME = ConsumerNode(Subscription({"page-views": 2, "jobs": 1}), "host-1", 42, "reader", 1_700_000_000_000)
BY_FILTER = BY_NAME._replace(subscription=Subscription({}, TopicFilter("page-.*", "page-x"), 3))


@pytest.mark.parametrize("node", [BY_NAME, BY_FILTER], ids=["by name", "by filter"])
def test_consumer_is_read_as_it_was_written(node: ConsumerNode) -> None:
    assert decode_consumer("/c", encode_consumer(node)) == node


def test_consumer_is_written_with_early_kafkas_fields() -> None:
    content = json.loads(encode_consumer(BY_NAME))
    assert content["version"] == 1
    assert content["pattern"] == "static"
    assert content["subscription"] == {"page-views": 2, "jobs": 1}
    assert content["timestamp"] == "1700000000000"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"pattern": "white_list"},
        {"pattern": None},
        {"subscription": {}},
        {"subscription": {"page-views": 0}},
        {"subscription": {"page-views": 10_001}},
        {"subscription": {"page-views": "2"}},
        {"subscription": {"../x": 1}},
        {"subscription": None},
        {"host": 7},
        {"pid": "42"},
        {"timestamp": 7},
        {"timestamp": "soon"},
        {"pattern": "filter"},
        {"pattern": "filter", "allow": "(", "streams": 1},
        {"pattern": "filter", "allow": "a", "streams": 0},
    ],
)
def test_consumer_in_another_format_is_damaged(change: dict[str, object]) -> None:
    content = json.loads(encode_consumer(BY_NAME)) | change
    with pytest.raises(NodeDamaged, match="/consumers/g/ids/c"):
        decode_consumer("/consumers/g/ids/c", json.dumps(content).encode())


def test_owner_is_the_name_of_its_stream() -> None:
    stream = StreamId("host-1-abc", 7)
    assert encode_owner(stream) == b"host-1-abc-7"
    assert decode_owner("/o", b"host-1-abc-7") == stream


@pytest.mark.parametrize("data", [b"", b"x", b"-7", b"\xff-1", b"a-" + b"9" * 5_000])
def test_owner_that_is_not_a_stream_is_damaged(data: bytes) -> None:
    with pytest.raises(NodeDamaged, match="/o"):
        decode_owner("/o", data)


@pytest.mark.parametrize("session_id", [0x100_2003_4005, -0x7000_0000_0000_0001])
@pytest.mark.parametrize("offset", [-1, 0, 2**63 - 1])
def test_offset_is_read_as_it_was_written(offset: int, session_id: int) -> None:
    content = OffsetContent(offset, ClaimId(session_id, 12), TOPIC_ID, "host-1-abc-0", 1_700_000_000_000)
    assert decode_offset("/o", encode_offset(content)) == content
    released = content._replace(claim=None, topic_id=None)
    assert decode_offset("/o", encode_offset(released)) == released


def test_offset_that_a_person_wrote_needs_no_more_than_the_number() -> None:
    assert decode_offset("/o", b'{"version":1,"offset":500}') == OffsetContent(500, None, None, "", 0)


@pytest.mark.parametrize(
    "data",
    [
        b"500",
        b"",
        b'{"version":2,"offset":1}',
        b'{"version":1}',
        b'{"version":1,"offset":-2}',
        b'{"version":1,"offset":9223372036854775808}',
        b'{"version":1,"offset":1.5}',
        b'{"version":1,"offset":1,"claim":"x"}',
        b'{"version":1,"offset":1,"claim":7}',
        b'{"version":1,"offset":1,"topic_id":"x"}',
        b'{"version":1,"offset":1,"timestamp":"x"}',
    ],
)
def test_offset_in_another_format_is_damaged(data: bytes) -> None:
    with pytest.raises(NodeDamaged, match="/o"):
        decode_offset("/o", data)
