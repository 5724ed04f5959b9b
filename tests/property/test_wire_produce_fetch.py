"""The hot codecs of Produce and Fetch against the message classes, which are checked against kio."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.api import API_VERSIONS, ApiKey, VersionRange
from ottla.protocol.fetch import TOPIC_IDS_FROM_VERSION, FetchResponseWriter, read_fetch
from ottla.protocol.frame import LENGTH_PREFIX, read_response_header
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.produce import ProducePartitionResult, RecordErrors, read_produce, write_produce_response
from ottla.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from ottla.protocol.schemas.produce import ProduceRequest, ProduceResponse
from tests.property.property_settings import examples_max
from tests.property.wire_strategies import requests

FEW = settings(max_examples=examples_max(60), suppress_health_check=[HealthCheck.too_slow])


def versions(supported: VersionRange) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(supported.lowest, supported.highest + 1))


INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=10).map(str.encode)


@versions(API_VERSIONS[ApiKey.PRODUCE])
@FEW
@given(data=st.data(), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_produce_request_is_read_in_place(version: int, data: st.DataObject, before: bytes, after: bytes) -> None:
    message = data.draw(requests(ApiKey.PRODUCE, version))
    assert isinstance(message, ProduceRequest)
    body = encode_request(ApiKey.PRODUCE, version, message)
    buffer = bytearray(before + body + after)

    found = read_produce(buffer, len(before), len(before) + len(body), version)

    assert (found.acks, found.timeout_ms) == (message.acks, message.timeout_ms)
    assert found.transactional_id == (None if message.transactional_id is None else message.transactional_id.encode())
    assert [
        (name, [(index, None if first < 0 else bytes(buffer[first:end])) for index, first, end in partitions])
        for name, partitions in found.topics
    ] == [(topic.name.encode(), [(p.index, p.records) for p in topic.partition_data]) for topic in message.topic_data]


TEXT = st.text(max_size=10)
ERRORS = st.builds(RecordErrors, TEXT, st.lists(st.tuples(INT32, TEXT), max_size=2))
PRODUCE_RESULTS = st.lists(
    st.tuples(
        NAMES,
        st.lists(st.tuples(INT32, INT16, INT64, INT64, INT64, st.none() | ERRORS), max_size=3),
    ),
    max_size=3,
)


@versions(API_VERSIONS[ApiKey.PRODUCE])
@FEW
@given(correlation_id=INT32, topics=PRODUCE_RESULTS)
def test_produce_response_is_a_whole_frame(
    version: int, correlation_id: int, topics: list[tuple[bytes, list[ProducePartitionResult]]]
) -> None:
    frame = write_produce_response(correlation_id, version, topics)

    assert LENGTH_PREFIX.unpack_from(frame)[0] == len(frame) - 4
    found_id, position = read_response_header(ApiKey.PRODUCE, version, frame, 4, len(frame))
    response = decode_response(ApiKey.PRODUCE, version, memoryview(frame)[position:])
    assert isinstance(response, ProduceResponse)
    assert found_id == correlation_id
    assert response.throttle_time_ms == 0
    assert [
        (
            topic.name.encode(),
            [
                (
                    *(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset),
                    p.error_message,
                    [(row.batch_index, row.batch_index_error_message) for row in p.record_errors],
                )
                for p in topic.partition_responses
            ],
        )
        for topic in response.responses
    ] == [
        (
            name,
            [
                (
                    *(index, error, base, time_ms, start if version >= 5 else -1),
                    errors.message if errors and version >= 8 else None,
                    errors.rows if errors and version >= 8 else [],
                )
                for index, error, base, time_ms, start, errors in results
            ],
        )
        for name, results in topics
    ]


def topic_key(topic: FetchTopic | ForgottenTopic | FetchableTopicResponse, version: int) -> bytes:
    """The field by which a version names a topic."""
    return topic.topic_id.bytes if version >= TOPIC_IDS_FROM_VERSION else topic.topic.encode()


@versions(API_VERSIONS[ApiKey.FETCH])
@FEW
@given(data=st.data(), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_fetch_request_is_read_in_place(version: int, data: st.DataObject, before: bytes, after: bytes) -> None:
    message = data.draw(requests(ApiKey.FETCH, version))
    assert isinstance(message, FetchRequest)
    body = encode_request(ApiKey.FETCH, version, message)
    buffer = bytearray(before + body + after)

    found = read_fetch(buffer, len(before), len(before) + len(body), version)

    assert found[:7] == (
        message.replica_id if version < 15 else message.replica_state.replica_id,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id,
        message.session_epoch,
    )
    assert found.replica_epoch == (-1 if version < 15 else message.replica_state.replica_epoch)
    assert found.rack == message.rack_id.encode()
    assert found.forgotten == [(topic_key(t, version), t.partitions) for t in message.forgotten_topics_data]
    assert found.topics == [
        (
            topic_key(topic, version),
            [
                (
                    p.partition,
                    p.current_leader_epoch,
                    p.fetch_offset,
                    p.last_fetched_epoch,
                    p.log_start_offset,
                    p.partition_max_bytes,
                )
                for p in topic.partitions
            ],
        )
        for topic in message.topics
    ]


PARTITION_RESULTS = st.tuples(
    INT32,
    INT16,
    INT64,
    INT64,
    INT64,
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=2),
    st.none() | st.tuples(INT32, INT64),
    st.binary(max_size=20),
)
PartitionResult = tuple[int, int, int, int, int, list[tuple[int, int]] | None, tuple[int, int] | None, bytes]


@versions(API_VERSIONS[ApiKey.FETCH])
@FEW
@given(
    correlation_id=INT32,
    error=INT16,
    session_id=INT32,
    topics=st.lists(st.tuples(NAMES, st.uuids(), st.lists(PARTITION_RESULTS, max_size=3)), max_size=3),
)
def test_fetch_response_pieces_make_a_whole_frame(
    version: int,
    correlation_id: int,
    error: int,
    session_id: int,
    topics: list[tuple[bytes, UUID, list[PartitionResult]]],
) -> None:
    writer: FetchResponseWriter[bytes] = FetchResponseWriter(
        correlation_id, version, topics_count=len(topics), error_code=error, session_id=session_id
    )
    keys = [topic_id.bytes if version >= TOPIC_IDS_FROM_VERSION else name for name, topic_id, _ in topics]
    for key, (_, _, partitions) in zip(keys, topics, strict=True):
        writer.topic(key, len(partitions))
        for index, code, high_watermark, stable, start, aborted, diverging, records in partitions:
            writer.partition(
                index,
                code,
                high_watermark,
                stable,
                start,
                aborted=aborted,
                diverging=diverging if version >= 12 else None,
                records=records or None,
                records_length=len(records),
            )
    frame = b"".join(writer.finish())

    assert LENGTH_PREFIX.unpack_from(frame)[0] == len(frame) - 4
    found_id, position = read_response_header(ApiKey.FETCH, version, frame, 4, len(frame))
    response = decode_response(ApiKey.FETCH, version, memoryview(frame)[position:])
    assert isinstance(response, FetchResponse)
    assert found_id == correlation_id
    if version >= 7:
        assert (response.error_code, response.session_id) == (error, session_id)
    assert [topic_key(topic, version) for topic in response.responses] == keys
    for topic, (_, _, partitions) in zip(response.responses, topics, strict=True):
        for found, wanted in zip(topic.partitions, partitions, strict=True):
            index, code, high_watermark, stable, start, aborted, diverging, records = wanted
            assert (found.partition_index, found.error_code) == (index, code)
            assert (found.high_watermark, found.last_stable_offset) == (high_watermark, stable)
            assert found.log_start_offset == (start if version >= 5 else -1)
            assert found.records is not None
            assert bytes(found.records) == records
            assert found.preferred_read_replica == -1
            transactions = found.aborted_transactions
            assert aborted == (
                None if transactions is None else [(each.producer_id, each.first_offset) for each in transactions]
            )
            if version >= 12:
                epoch = found.diverging_epoch
                assert (epoch.epoch, epoch.end_offset) == (diverging or (-1, -1))
