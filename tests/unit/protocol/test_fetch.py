"""The hot Fetch codec, shape by shape; the wire tests have the random ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ottla.model.errors import WireError
from ottla.protocol import fetch
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import FetchResponseWriter, read_fetch, read_fetch_steps
from ottla.protocol.frame import response_frame
from ottla.protocol.messages import encode_request, encode_response
from ottla.protocol.schemas.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from ottla.runtime.steps import run_steps
from tests.property.wire_samples import SAMPLE_UUID

VERSIONS = range(4, 18)


@pytest.mark.parametrize("version", VERSIONS)
def test_response_of_every_shape_is_what_the_schema_writes(version: int) -> None:
    for records, aborted in product([b"", b"batches", b"x" * 300], [None, [], [(7, 3)]]):
        for partitions_count, topics_count in product(range(3), range(3)):
            assert_written_as_by_the_schema(version, records, aborted, partitions_count, topics_count)


def assert_written_as_by_the_schema(
    version: int, records: bytes, aborted: list[tuple[int, int]] | None, partitions_count: int, topics_count: int
) -> None:
    diverging = (4, 44) if version >= 12 and records == b"" else None
    preferred = 300 if version >= 11 and records == b"" else -1
    # Beside an error the records are empty, but the codec takes all combinations.
    leader = (6, 8) if version >= 16 and aborted is None else None
    endpoints = [(6, "six.example", 9092, None), (7, "seven.example", 9093, "rack")] if leader else []
    writer: FetchResponseWriter[bytes] = FetchResponseWriter(99, version, topics_count=topics_count, session_id=5)
    for _ in range(topics_count):
        writer.topic(SAMPLE_UUID.bytes if version >= 13 else b"orders", partitions_count)
        for index in range(partitions_count):
            writer.partition(
                index,
                3,
                1 << 40,
                1 << 39,
                7,
                aborted=aborted,
                diverging=diverging,
                leader=leader,
                preferred_replica=preferred,
                records=records or None,
                records_length=len(records),
            )
    partition = PartitionData(
        0,
        3,
        1 << 40,
        1 << 39,
        7,
        None if aborted is None else [AbortedTransaction(*each) for each in aborted],
        preferred,
        records=records,
        diverging_epoch=EpochEndOffset(*diverging) if diverging else EpochEndOffset(),
        current_leader=LeaderIdAndEpoch(*leader) if leader else LeaderIdAndEpoch(),
    )
    partitions = [replace(partition, partition_index=i) for i in range(partitions_count)]
    response = FetchResponse(
        *(0, 0, 5),
        [FetchableTopicResponse("orders", SAMPLE_UUID, partitions)] * topics_count,
        [NodeEndpoint(*endpoint) for endpoint in endpoints],
    )
    pieces = writer.finish(endpoints)
    assert pieces.count(records) == (topics_count * partitions_count if records else 0)
    body = encode_response(ApiKey.FETCH, version, response)
    assert b"".join(pieces) == response_frame(ApiKey.FETCH, version, 99, body)


@pytest.mark.parametrize("version", [11, 12, 13])
@pytest.mark.parametrize(
    "too_much",
    [
        FetchRequest(topics=[FetchTopic()] * 11),
        FetchRequest(forgotten_topics_data=[ForgottenTopic(partitions=[0] * 6)] * 2),
    ],
    ids=["topics without partitions", "forgotten partitions of all topics together"],
)
def test_all_that_a_request_names_is_counted(
    version: int, too_much: FetchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = encode_request(ApiKey.FETCH, version, too_much)
    read_fetch(bytearray(body), 0, len(body), version)
    monkeypatch.setattr(fetch, "PARTITIONS_MAX", 10)
    with pytest.raises(WireError, match="more than 10"):
        read_fetch(bytearray(body), 0, len(body), version)
    with pytest.raises(WireError, match="more than 10"):
        run_steps(read_fetch_steps(bytearray(body), 0, len(body), version))


@pytest.mark.parametrize("version", [4, 6, 8, 11, 12, 14, 16])
@pytest.mark.parametrize(("topics_count", "partitions_count"), [(1, 40), (40, 1), (3, 13), (40, 0), (0, 0)])
def test_many_partitions_are_read_in_steps(
    version: int, topics_count: int, partitions_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_PARTITIONS_OF_STEP", 4)
    topic = FetchTopic("t", SAMPLE_UUID, [FetchPartition(i, fetch_offset=7 * i) for i in range(partitions_count)])
    forgotten = ForgottenTopic("t", SAMPLE_UUID, list(range(partitions_count)))
    request = FetchRequest(
        max_wait_ms=7,
        topics=[topic] * topics_count,
        forgotten_topics_data=[forgotten] * topics_count if version >= 7 else [],
    )
    body = bytearray(encode_request(ApiKey.FETCH, version, request))
    found = run_steps(read_fetch_steps(body, 0, len(body), version))
    assert found == read_fetch(body, 0, len(body), version)
    assert len(found.topics) == topics_count
    assert len(list(read_fetch_steps(body, 0, len(body), version))) >= topics_count * partitions_count // 8


@pytest.mark.parametrize("version", [15, 16, 17])
@pytest.mark.parametrize("replica", [(-1, -1), (0, 1 << 40), (7, 3)])
def test_replica_is_known_by_its_replica_state(version: int, replica: tuple[int, int]) -> None:
    request = FetchRequest(cluster_id="of another", replica_state=ReplicaState(*replica))
    body = encode_request(ApiKey.FETCH, version, request)
    found = read_fetch(bytearray(body), 0, len(body), version)
    assert (found.replica_id, found.replica_epoch) == replica


@pytest.mark.parametrize("version", [4, 12, 14])
def test_replica_of_an_older_version_has_no_epoch(version: int) -> None:
    body = encode_request(ApiKey.FETCH, version, FetchRequest(replica_id=7))
    found = read_fetch(bytearray(body), 0, len(body), version)
    assert (found.replica_id, found.replica_epoch) == (7, -1)


@pytest.mark.parametrize("length", [0, 11, 12, 14])
def test_replica_state_of_another_length_is_refused(length: int) -> None:
    body = encode_request(ApiKey.FETCH, 15, FetchRequest(replica_state=ReplicaState(7, 3)))
    section = body[-16:]
    assert section[:3] == bytes([1, 1, 13])
    wrong = body[:-16] + bytes([1, 1, length]) + section[3:].ljust(20, b"\0")[:length]
    with pytest.raises(WireError):
        read_fetch(bytearray(wrong), 0, len(wrong), 15)
