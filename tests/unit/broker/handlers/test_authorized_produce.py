"""Produce with an authorizer, on each of its paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.model.error_code import ErrorCode
from tests.unit.broker.authorization.rights import Rights
from tests.unit.broker.handlers.test_produce import Served
from tests.unit.broker.served_log import one_record

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
RECORD = bytes(one_record())


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    served.add("orders", 0)
    served.add("orders", 1)
    served.add("clicks", 0)
    yield served
    served.client.close()
    served.connection.close("the test is over")


def flush(served: Served) -> None:
    for log in served.logs.values():
        log.become_stable()


def test_a_batch_for_one_partition_needs_write_on_its_topic(served: Served) -> None:
    rights = Rights("WRITE TOPIC:orders")
    served.connection.access = rights.access
    served.send(("orders", 0, RECORD))
    flush(served)
    assert served.codes() == [(ErrorCode.NONE, 0)]
    rights.set("READ TOPIC:orders", "DESCRIBE TOPIC:orders")
    served.send(("orders", 0, RECORD))
    assert served.codes() == [(DENIED, -1)]
    assert served.logs["orders", 0].log.log_end_offset == 1
    assert rights.denied_texts() == ["WRITE TOPIC:orders"]


def test_only_the_topics_without_the_right_are_refused_in_a_request_for_many(served: Served) -> None:
    served.connection.access = Rights("WRITE TOPIC:clicks").access
    served.send(("orders", 0, RECORD), ("orders", 1, RECORD), ("clicks", 0, RECORD))
    flush(served)
    assert served.codes() == [(DENIED, -1), (DENIED, -1), (ErrorCode.NONE, 0)]
    assert [log.log.log_end_offset for log in served.logs.values()] == [0, 0, 1]


@pytest.mark.parametrize("name", ["unknown", "no legal name/", "__consumer_offsets"])
def test_a_topic_without_the_right_is_refused_alike_whether_it_exists(served: Served, name: str) -> None:
    served.connection.access = Rights().access
    served.send((name, 0, RECORD))
    assert served.codes() == [(DENIED, -1)]
    served.send((name, 0, RECORD), ("clicks", 0, RECORD))
    assert served.codes() == [(DENIED, -1), (DENIED, -1)]


def test_an_internal_topic_stays_closed_to_those_who_may_write_to_it(served: Served) -> None:
    served.connection.access = Rights("WRITE TOPIC:*").access
    served.send(("__consumer_offsets", 0, RECORD))
    assert served.codes() == [(INVALID, -1)]


def test_a_refusal_without_acknowledgement_closes_the_connection(served: Served) -> None:
    served.connection.access = Rights().access
    served.send(("orders", 0, RECORD), acks=0)
    assert served.connection.is_closed


def test_a_request_of_many_partitions_is_refused_in_steps_as_well(served: Served) -> None:
    served.connection.access = Rights("WRITE TOPIC:clicks").access
    served.send(*((name, 0, RECORD) for name in ("orders", "clicks") * 40))
    flush(served)
    found = [code for code, _ in served.codes()]
    assert found[:2] == [DENIED, ErrorCode.NONE]
    assert set(found[::2]) == {DENIED}
    assert DENIED not in found[1::2]
