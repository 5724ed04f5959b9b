"""What a grown topic may be, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.broker.context import NewTopic
from ottla.broker.topics.topic_rules import PARTITIONS_OF_TOPIC_MAX, added_assignment, new_assignment
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.model.settings import BrokerSettings
from tests.unit.broker.live_brokers import live

HERE = NodeId(5)
STATE = PartitionState(HERE, LeaderEpoch(0), (ReplicaIncarnation(HERE, 1),))


def topic(name: str = "orders", partitions_count: int = 2) -> Topic:
    return Topic(name, UUID(int=1), tuple(PartitionNode(index, (HERE,), STATE, 0) for index in range(partitions_count)))


def test_added_partitions_are_on_the_only_broker() -> None:
    assert added_assignment(topic(), 4, None, live(HERE)) == [[HERE], [HERE]]
    assert added_assignment(topic(), 3, [[5]], live(HERE)) == [[HERE]]


@pytest.mark.parametrize("count", [PARTITIONS_OF_TOPIC_MAX + 1, 2**31 - 1, 2, 1, 0, -(2**31)])
def test_count_that_is_no_growth_or_too_much_is_refused(count: int) -> None:
    with pytest.raises(RequestError) as refusal:
        added_assignment(topic(), count, None, live(HERE))
    assert refusal.value.code is ErrorCode.INVALID_PARTITIONS


def test_internal_topics_keep_their_count() -> None:
    with pytest.raises(RequestError) as refusal:
        added_assignment(topic("__consumer_offsets", 50), 60, None, live(HERE))
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


DEFAULTS = BrokerSettings.of({})


def code_of(call: Callable[[], object]) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as refusal:
        call()
    return refusal.value.code, str(refusal.value)


def test_replicas_are_on_different_live_brokers() -> None:
    for replicas in new_assignment(NewTopic("t", 9, 2), live(1, 2, 3), DEFAULTS):
        assert len(set(replicas)) == 2
        assert set(replicas) <= {1, 2, 3}


def test_leaders_are_spread_evenly() -> None:
    leaders = [replicas[0] for replicas in new_assignment(NewTopic("t", 9, 3), live(1, 2, 3), DEFAULTS)]
    assert sorted(leaders) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_factor_that_is_not_given_is_the_brokers_default() -> None:
    settings = BrokerSettings.of({"default.replication.factor": "2"})
    assert [len(replicas) for replicas in new_assignment(NewTopic("t"), live(1, 2, 3), settings)] == [2]


@pytest.mark.parametrize(
    ("factor", "brokers", "problem"),
    [(3, (1, 2), "2 are live"), (2, (5,), "this is the only one"), (0, (1, 2), "positive"), (-2, (1, 2), "positive")],
)
def test_factor_above_the_live_brokers_is_refused(factor: int, brokers: tuple[int, ...], problem: str) -> None:
    code, text = code_of(lambda: new_assignment(NewTopic("t", 1, factor), live(*brokers), DEFAULTS))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert problem in text


def test_given_replicas_are_taken_as_they_are() -> None:
    given = {1: [3, 1], 0: [1, 2]}
    assert new_assignment(NewTopic("t", assignment=given), live(1, 2, 3), DEFAULTS) == [[1, 2], [3, 1]]


@pytest.mark.parametrize(
    "given", [{0: [4]}, {0: []}, {0: [1, 1]}, {0: [1], 1: [1, 2]}, {1: [1]}, {}], ids=lambda given: repr(given)
)
def test_given_replicas_that_cannot_be_are_refused(given: dict[int, list[int]]) -> None:
    code, _ = code_of(lambda: new_assignment(NewTopic("t", assignment=given), live(1, 2, 3), DEFAULTS))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("given", [[[6]], [[5, 6]], [[]]])
def test_added_partitions_have_replicas_as_the_others(given: list[list[int]]) -> None:
    code, _ = code_of(lambda: added_assignment(topic(), 3, given, live(HERE, 7)))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_are_not_added_while_too_few_brokers_live() -> None:
    pair = Topic("pair", UUID(int=1), (PartitionNode(0, (HERE, NodeId(6)), STATE, 0),))
    code, _ = code_of(lambda: added_assignment(pair, 2, None, live(HERE)))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
