"""A follower's codec of Fetch against the message classes, which are checked against kio, and against hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import FetchRequest, read_fetch
from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.replica_fetch import REPLICA_FETCH_VERSION, encode_replica_fetch, read_replica_fetch_response
from ottla.protocol.schemas.fetch import FetchRequest as RequestMessage
from ottla.protocol.schemas.fetch import FetchResponse
from tests.property.property_settings import examples_max
from tests.property.test_wire_hostile import LIES
from tests.property.wire_strategies import responses

FEW = settings(max_examples=examples_max(200), suppress_health_check=[HealthCheck.too_slow])

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_IDS = st.uuids().map(lambda found: found.bytes)
FETCHES = st.tuples(INT32, INT32, INT64, INT32, INT64, INT32)
REQUESTS = st.builds(
    FetchRequest,
    replica_id=INT32,
    replica_epoch=INT64,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=st.integers(0, 1),
    session_id=INT32,
    session_epoch=INT32,
    topics=st.lists(st.tuples(TOPIC_IDS, st.lists(FETCHES, max_size=3)), max_size=3),
    forgotten=st.lists(st.tuples(TOPIC_IDS, st.lists(INT32, max_size=3)), max_size=3),
    rack=st.text(max_size=5).map(str.encode),
)


@FEW
@given(request=REQUESTS)
def test_request_is_read_back_by_the_leader_and_by_the_message_classes(request: FetchRequest) -> None:
    body = encode_replica_fetch(request)
    assert read_fetch(bytearray(body), 0, len(body), REPLICA_FETCH_VERSION) == request
    message = decode_request(ApiKey.FETCH, REPLICA_FETCH_VERSION, body)
    assert isinstance(message, RequestMessage)
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (
        request.replica_id,
        request.replica_epoch,
    )
    assert [topic.topic_id.bytes for topic in message.topics] == [topic_id for topic_id, _ in request.topics]


def _given(*numbers: int) -> tuple[int, ...] | None:
    return None if all(number < 0 for number in numbers) else numbers


@FEW
@given(response=responses(ApiKey.FETCH, REPLICA_FETCH_VERSION))
def test_response_is_read_in_place(response: FetchResponse) -> None:
    body = memoryview(encode_response(ApiKey.FETCH, REPLICA_FETCH_VERSION, response))
    found = read_replica_fetch_response(body)
    assert (found.error_code, found.session_id) == (response.error_code, response.session_id)
    assert [each[:-1] for each in found.partitions] == [
        (
            topic.topic_id.bytes,
            row.partition_index,
            row.error_code,
            row.high_watermark,
            row.log_start_offset,
            _given(row.diverging_epoch.epoch, row.diverging_epoch.end_offset),
            _given(row.current_leader.leader_id, row.current_leader.leader_epoch),
        )
        for topic in response.responses
        for row in topic.partitions
    ]
    assert [bytes(each.records) for each in found.partitions] == [
        row.records or b"" for topic in response.responses for row in topic.partitions
    ]
    assert all(each.records.obj is body.obj for each in found.partitions)


@FEW
@given(
    response=responses(ApiKey.FETCH, REPLICA_FETCH_VERSION),
    at=st.floats(0, 1),
    wound=st.one_of(st.none(), st.sampled_from(LIES), st.binary(min_size=1, max_size=4)),
)
def test_hostile_bytes_end_in_a_value_or_a_refusal(response: FetchResponse, at: float, wound: bytes | None) -> None:
    body = bytearray(encode_response(ApiKey.FETCH, REPLICA_FETCH_VERSION, response))
    place = int(at * len(body))
    if wound is None:
        del body[place:]
    else:
        body[place : place + len(wound)] = wound
    try:
        read_replica_fetch_response(memoryview(body))
    except WireError as refusal:
        assert str(refusal)  # noqa: PT017 - the error is returned


@FEW
@given(body=st.binary(max_size=200))
def test_noise_is_read_or_refused(body: bytes) -> None:
    try:
        read_replica_fetch_response(memoryview(body))
    except WireError as refusal:
        assert str(refusal)  # noqa: PT017 - the error is returned


def test_whole_response_with_bytes_after_it_is_refused() -> None:
    body = encode_response(ApiKey.FETCH, REPLICA_FETCH_VERSION, FetchResponse())
    with pytest.raises(WireError, match="1 bytes after its end"):
        read_replica_fetch_response(memoryview(body + b"\0"))
