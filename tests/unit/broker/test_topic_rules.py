"""What a grown topic may be, without a broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.topic_rules import PARTITIONS_OF_TOPIC_MAX, added_assignment
from ottla.coordination.topics_view import Partition, Topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation

HERE = NodeId(5)
STATE = PartitionState(HERE, LeaderEpoch(0), (ReplicaIncarnation(HERE, 1),))


def topic(name: str = "orders", partitions_count: int = 2) -> Topic:
    return Topic(name, UUID(int=1), tuple(Partition(index, (HERE,), STATE, 0) for index in range(partitions_count)))


def test_added_partitions_are_on_the_only_broker() -> None:
    assert added_assignment(topic(), 4, None, HERE) == [[HERE], [HERE]]
    assert added_assignment(topic(), 3, [[5]], HERE) == [[HERE]]


@pytest.mark.parametrize("count", [PARTITIONS_OF_TOPIC_MAX + 1, 2**31 - 1, 2, 1, 0, -(2**31)])
def test_count_that_is_no_growth_or_too_much_is_refused(count: int) -> None:
    with pytest.raises(RequestError) as refusal:
        added_assignment(topic(), count, None, HERE)
    assert refusal.value.code is ErrorCode.INVALID_PARTITIONS


def test_internal_topics_keep_their_count() -> None:
    with pytest.raises(RequestError) as refusal:
        added_assignment(topic("__consumer_offsets", 50), 60, None, HERE)
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
