"""Fetch from version 13 on: topics by id, replicas by their replica state."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, TopicPartition
from ottla.model.partition_state import PartitionState
from ottla.protocol.schemas.fetch import FetchRequest, FetchTopic, LeaderIdAndEpoch, NodeEndpoint, ReplicaState
from tests.unit.broker.handlers.test_fetch import OTHER_BROKER, OTHER_LIFE, Served, at
from tests.unit.broker.handlers.test_fetch import served as served_by_name  # noqa: F401 - a fixture
from tests.unit.broker.roles import ELSEWHERE, SOLE, led_by

OTHER_ID = UUID(int=7)
ZERO_ID = UUID(int=0)
LAST_VERSION_OF_NAMES = 12


@pytest.fixture(params=range(13, 18))
def served(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue("served_by_name")
    found.version = request.param
    return found


def test_records_are_found_by_the_id_of_their_topic(served: Served) -> None:
    log = served.add("t")
    size = log.add()
    served.ask(at(0))
    response = served.answer()
    assert response is not None
    (topic,) = response.responses
    assert topic.topic_id == log.topic_id
    assert [len(partition.records or b"") for partition in topic.partitions] == [size]


def test_fetch_by_id_waits_for_records(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0))
    assert served.answer() is None
    size = log.add()
    assert served.sizes() == [size]


@pytest.mark.parametrize("topic_id", [OTHER_ID, ZERO_ID])
def test_id_that_is_not_served_is_refused_beside_a_topic_that_is(served: Served, topic_id: UUID) -> None:
    log = served.add("t")
    log.add()
    topics = [FetchTopic(topic_id=topic_id, partitions=[at(0)]), FetchTopic(topic_id=log.topic_id, partitions=[at(0)])]
    served.send(FetchRequest(max_wait_ms=1_000, min_bytes=1_000, max_bytes=1_000, topics=topics))
    response = served.answer()
    assert response is not None
    assert [topic.topic_id for topic in response.responses] == [topic_id, log.topic_id]
    assert [topic.partitions[0].error_code for topic in response.responses] == [ErrorCode.UNKNOWN_TOPIC_ID, 0]


def test_index_beyond_a_known_topic_is_unknown_by_its_index(served: Served) -> None:
    served.add("t")
    served.ask(at(0, 5))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_waiting_reader_of_a_recreated_topic_gets_an_error_and_not_its_records(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=2**31 - 1)
    remake(served)
    assert [found.error_code for found in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_ID]
    served.ask(at(0))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_ID]


def remake(served: Served) -> None:
    served.table.remove(TopicPartition("t", 0))
    served.add("t", topic_id=OTHER_ID).add()


def test_session_of_a_topic_made_anew_never_has_the_records_of_the_other(served: Served) -> None:
    served.add("t").add()
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert len(served.sizes()) == 1
    remake(served)
    for epoch in (1, 2):
        served.ask(session_id=100, session_epoch=epoch)
        assert [found.error_code for found in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_ID]
    both = FetchRequest(
        session_id=100,
        session_epoch=3,
        max_bytes=1_000,
        topics=[FetchTopic(topic_id=OTHER_ID, partitions=[at(0)])],
    )
    served.send(both)
    assert {found.error_code for found in served.partitions()} == {ErrorCode.UNKNOWN_TOPIC_ID, 0}


@pytest.mark.parametrize("begins_by_id", [True, False])
def test_session_whose_use_of_ids_changes_is_refused_and_goes_on_as_it_began(
    served: Served, begins_by_id: bool
) -> None:
    versions = served.version, LAST_VERSION_OF_NAMES
    own, other = versions if begins_by_id else versions[::-1]
    served.version = own
    size = served.add("t").add()
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [size]
    served.version = other
    served.ask(session_id=100, session_epoch=1)
    response = served.answer()
    assert response is not None
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert response.responses == []
    served.version = own
    served.ask(session_id=100, session_epoch=1)
    assert served.sizes() == [size]


def test_wrong_epoch_is_found_before_the_change_of_keys(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    served.version = LAST_VERSION_OF_NAMES
    served.ask(session_id=100, session_epoch=5)
    response = served.answer()
    assert response is not None
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_replica_is_refused_by_its_replica_state(served: Served) -> None:
    log = served.add("t")
    log.add()
    topics = [FetchTopic(topic_id=log.topic_id, partitions=[at(0)])]
    if served.version < 15:
        served.send(FetchRequest(replica_id=1, topics=topics))
    else:
        served.send(FetchRequest(replica_state=ReplicaState(1, 9), topics=topics))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("session_epoch", [-1, 0, 1])
def test_reader_of_a_partition_that_is_led_elsewhere_is_given_its_leader_from_version_16_on(
    served: Served, session_epoch: int
) -> None:
    log = served.add("t")
    if session_epoch == 1:
        served.ask(at(0), max_wait_ms=0, session_epoch=0)
        assert served.sizes() == [0]
    log.partition.on_state(led_by(ELSEWHERE, 9, version=9), SOLE, 0)
    node = PartitionNode(0, (), PartitionState(OTHER_BROKER.node_id, LeaderEpoch(9), (OTHER_LIFE,)), 0)
    served.topics = TopicsView.of(1, {"t": Topic("t", log.topic_id, (node,))})
    session_id = 100 if session_epoch == 1 else 0
    served.ask(at(0, current_leader_epoch=3), session_id=session_id, session_epoch=session_epoch)
    response = served.answer()
    assert response is not None
    ((found,),) = (topic.partitions for topic in response.responses)
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert found.current_leader == (LeaderIdAndEpoch(2, 9) if served.version >= 16 else LeaderIdAndEpoch())
    assert response.node_endpoints == ([NodeEndpoint(*OTHER_BROKER)] if served.version >= 16 else [])


def test_leaders_are_not_given_beside_other_errors(served: Served) -> None:
    log = served.add("t")
    node = PartitionNode(0, (), PartitionState(OTHER_BROKER.node_id, LeaderEpoch(9), (OTHER_LIFE,)), 0)
    served.topics = TopicsView.of(1, {"t": Topic("t", log.topic_id, (node,))})
    served.ask(at(5))
    response = served.answer()
    assert response is not None
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert response.responses[0].partitions[0].current_leader == LeaderIdAndEpoch()
    assert response.node_endpoints == []
