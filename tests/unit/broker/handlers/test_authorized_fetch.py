"""Fetch with an authorizer: full requests, sessions, requests that wait, and replicas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.fetch import FetchRequest
from tests.unit.broker.authorization.rights import Rights
from tests.unit.broker.handlers.test_fetch import Served, at, topic
from tests.unit.broker.served_log import topic_id_of

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.client.close()
    served.connection.close("the test is over")


def codes(served: Served) -> list[int]:
    response = served.answer()
    assert response is not None, "no answer"
    return [response.error_code, *(each.error_code for topic in response.responses for each in topic.partitions)]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_may_not_be_read_is_refused_beside_one_that_may(served: Served, version: int) -> None:
    served.version = version
    served.add("t").add()
    size = served.add("u").add()
    know(served, "t", "u")
    rights = Rights("READ TOPIC:u")
    served.connection.access = rights.access
    served.send(FetchRequest(topics=[topic("t", at(0)), topic("u", at(0))], max_wait_ms=1_000))
    response = served.answer()
    assert response is not None
    parts = [each.partitions[0] for each in response.responses]
    assert [part.error_code for part in parts] == [DENIED, 0]
    assert [len(part.records or b"") for part in parts] == [0, size]
    assert rights.denied_texts() == ["READ TOPIC:t"]


def test_a_topic_is_refused_by_name_alike_whether_it_exists(served: Served) -> None:
    served.version = 12
    served.connection.access = Rights().access
    served.add("t").add()
    served.send(FetchRequest(topics=[topic("t", at(0)), topic("unknown", at(0))], max_wait_ms=1_000))
    assert codes(served) == [0, DENIED, DENIED]


def test_an_unknown_id_is_no_secret(served: Served) -> None:
    served.version = 13
    served.connection.access = Rights().access
    served.send(FetchRequest(topics=[topic("unknown", at(0))], max_wait_ms=1_000))
    assert codes(served) == [0, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", [12, 13])
def test_a_session_is_checked_again_at_each_of_its_fetches(served: Served, version: int) -> None:
    served.version = version
    log = served.add("t")
    know(served, "t")
    rights = Rights("READ TOPIC:t")
    served.connection.access = rights.access
    session_id = opened(served)
    rights.set()
    log.add()
    served.send(FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=1_000))
    assert codes(served) == [0, DENIED]
    rights.set("READ TOPIC:t")
    served.send(FetchRequest(session_id=session_id, session_epoch=2, max_wait_ms=1_000))
    assert served.sizes() != [0]


@pytest.mark.parametrize("has_session", [False, True])
def test_a_fetch_that_waits_gets_no_records_after_its_right_was_revoked(served: Served, has_session: bool) -> None:
    log = served.add("t")
    know(served, "t")
    rights = Rights("READ TOPIC:t")
    served.connection.access = rights.access
    if has_session:
        served.send(FetchRequest(session_id=opened(served), session_epoch=1, max_wait_ms=10_000, min_bytes=1))
    else:
        served.ask(at(0), max_wait_ms=10_000)
    assert served.answer() is None
    rights.set()
    log.add()
    assert codes(served) == [0, DENIED]


def test_a_session_is_not_found_by_another_principal(served: Served) -> None:
    served.add("t")
    know(served, "t")
    served.connection.access = Rights("READ TOPIC:t").access
    session_id = opened(served)
    owner = served.client
    served.client, other = served.connect()
    other.principal = "User:eve"
    other.access = Rights("READ TOPIC:t").access
    served.send(FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=0))
    assert codes(served) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
    # Nor can it close it by a full request.
    served.send(FetchRequest(session_id=session_id, session_epoch=-1, max_wait_ms=0))
    assert codes(served) == [0]
    served.client.close()
    other.close("done")
    served.client = owner
    served.send(FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=0))
    assert codes(served) == [0]


def test_a_replica_needs_the_right_to_act_for_the_cluster(served: Served) -> None:
    served.version = 12
    served.add("t").add()
    rights = Rights("READ TOPIC:t")
    served.connection.access = rights.access
    served.send(FetchRequest(replica_id=2, topics=[topic("t", at(0))], max_wait_ms=0))
    assert codes(served) == [0, DENIED]
    assert rights.denied_texts() == ["CLUSTER_ACTION CLUSTER:kafka-cluster"]
    # With it, the registration decides.
    rights.set("CLUSTER_ACTION CLUSTER")
    served.send(FetchRequest(replica_id=2, topics=[topic("t", at(0))], max_wait_ms=0))
    assert codes(served) == [0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def opened(served: Served) -> int:
    served.send(FetchRequest(topics=[topic("t", at(0))], session_epoch=0, max_wait_ms=0))
    response = served.answer()
    assert response is not None
    assert response.session_id
    return response.session_id


def know(served: Served, *names: str) -> None:
    """The topics are in the tree."""
    for name in names:
        served.table.set_topic(name, topic_id_of(name), 1)
