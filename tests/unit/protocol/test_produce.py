"""The hot Produce codec, shape by shape; the wire tests have the random ones."""

from __future__ import annotations

from itertools import product

import pytest

from ottla.model.errors import WireError
from ottla.protocol import produce
from ottla.protocol.api import ApiKey
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.frame import response_frame
from ottla.protocol.messages import encode_request, encode_response
from ottla.protocol.produce import (
    ManyPartitions,
    RecordErrors,
    read_produce,
    read_produce_steps,
    write_produce_response,
    write_produce_response_steps,
)
from ottla.protocol.produce import ProduceRequest as ReadRequest
from ottla.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.runtime.steps import run_steps

VERSIONS = range(3, 11)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "errors", [None, RecordErrors(""), RecordErrors("reason"), RecordErrors("many", [(0, "first"), (70_000, "")])]
)
def test_response_of_every_shape_is_what_the_schema_writes(version: int, errors: RecordErrors | None) -> None:
    for partitions_count, topics_count in product(range(3), range(3)):
        assert_written_as_by_the_schema(version, errors, partitions_count, topics_count)


def assert_written_as_by_the_schema(
    version: int, errors: RecordErrors | None, partitions_count: int, topics_count: int
) -> None:
    results = [(index, 6, 1 << 40, 1 << 41, 7, errors) for index in range(partitions_count)]
    written = write_produce_response(99, version, [(b"orders", results)] * topics_count)
    rows = [BatchIndexAndErrorMessage(*row) for row in errors.rows] if errors else []
    message = errors.message if errors else None
    partitions = [PartitionProduceResponse(i, 6, 1 << 40, 1 << 41, 7, rows, message) for i in range(partitions_count)]
    response = ProduceResponse([TopicProduceResponse("orders", partitions)] * topics_count)
    body = encode_response(ApiKey.PRODUCE, version, response)
    assert written == response_frame(ApiKey.PRODUCE, version, 99, body)
    assert run_steps(write_produce_response_steps(99, version, [(b"orders", results)] * topics_count)) == written


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("endpoints", [[], [(6, "six.example", 9092, None), (7, "h" * 200, 9093, "rack")]])
def test_leaders_of_refused_partitions_are_named_from_version_10_on(
    version: int, endpoints: list[tuple[int, str, int, str | None]]
) -> None:
    results = [(index, 6, -1, -1, -1, None) for index in range(3)]
    leaders = CurrentLeaders({(b"orders", 0): (6, 8), (b"orders", 2): (7, 1), (b"others", 1): (7, 1)}, endpoints)
    written = write_produce_response(99, version, [(b"orders", results)], leaders)
    assert run_steps(write_produce_response_steps(99, version, [(b"orders", results)], leaders)) == written
    named = {0: LeaderIdAndEpoch(6, 8), 2: LeaderIdAndEpoch(7, 1)} if version >= 10 else {}
    partitions = [PartitionProduceResponse(i, 6, -1, current_leader=named.get(i, LeaderIdAndEpoch())) for i in range(3)]
    response = ProduceResponse(
        [TopicProduceResponse("orders", partitions)], node_endpoints=[NodeEndpoint(*each) for each in endpoints]
    )
    body = encode_response(ApiKey.PRODUCE, version, response)
    assert written == response_frame(ApiKey.PRODUCE, version, 99, body)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [[], [(0, b"batch")], [(0, None)], [(0, b"")], [(3, b"batch"), (-1, b"other")]])
def test_request_of_every_shape_is_read(version: int, partitions: list[tuple[int, bytes | None]]) -> None:
    for transactional_id, topics_count in product([None, "", "tx"], range(3)):
        assert_read_as_written(version, transactional_id, partitions, topics_count)


def assert_read_as_written(
    version: int, transactional_id: str | None, partitions: list[tuple[int, bytes | None]], topics_count: int
) -> None:
    data = [PartitionProduceData(index, records) for index, records in partitions]
    request = ProduceRequest(transactional_id, -1, 5000, [TopicProduceData("orders", data)] * topics_count)
    body = encode_request(ApiKey.PRODUCE, version, request)
    for buffer in (bytearray(b"xx" + body + b"xxx" * 30), memoryview(b"xx" + body + b"xxx" * 30)):
        found = read_produce(buffer, 2, 2 + len(body), version)
        read = [(i, None if first < 0 else bytes(buffer[first:end])) for _, ps in found.topics for i, first, end in ps]
        assert read == partitions * topics_count
        assert found._replace(topics=[]) == ReadRequest(
            None if transactional_id is None else transactional_id.encode(), -1, 5000, []
        )
        assert run_steps(read_produce_steps(buffer, 2, 2 + len(body), version)) == found


@pytest.mark.parametrize("version", [8, 9])
def test_topics_without_partitions_are_counted_too(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three bytes each on the wire, more than a hundred in memory.
    monkeypatch.setattr(produce, "PARTITIONS_MAX", 10)
    bodies = [
        encode_request(ApiKey.PRODUCE, version, ProduceRequest(None, -1, 5000, [TopicProduceData("", [])] * count))
        for count in (10, 11)
    ]
    assert len(read_in_steps(bodies[0], version).topics) == 10
    with pytest.raises(WireError, match="more than 10"):
        read_in_steps(bodies[1], version)


def read_in_steps(body: bytes | bytearray, version: int) -> ReadRequest:
    return run_steps(read_produce_steps(bytearray(body), 0, len(body), version))


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(("topics_count", "partitions_count"), [(1, 40), (40, 1), (3, 13), (40, 0)])
def test_many_partitions_are_read_in_steps(
    version: int, topics_count: int, partitions_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_AT_ONCE_MAX", 30)
    monkeypatch.setattr(produce, "_PARTITIONS_OF_STEP", 4)
    topics = [
        TopicProduceData(f"t{number}", [PartitionProduceData(index, b"x" * index) for index in range(partitions_count)])
        for number in range(topics_count)
    ]
    body = encode_request(ApiKey.PRODUCE, version, ProduceRequest(None, -1, 5000, topics))
    with pytest.raises(ManyPartitions):
        read_produce(bytearray(body), 0, len(body), version)
    found = read_in_steps(body, version)
    assert [
        (name.decode(), [PartitionProduceData(index, bytes(body[first:end])) for index, first, end in partitions])
        for name, partitions in found.topics
    ] == [(topic.name, topic.partition_data) for topic in topics]
    assert len(list(read_produce_steps(bytearray(body), 0, len(body), version))) >= 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions_count", [1, 2])
def test_throttle_time_is_what_the_schema_writes(version: int, partitions_count: int) -> None:
    results = [(index, 0, 5, -1, 0, None) for index in range(partitions_count)]
    written = write_produce_response(99, version, [(b"orders", results)], throttle_ms=10_054)
    partitions = [PartitionProduceResponse(index, 0, 5, -1, 0) for index in range(partitions_count)]
    response = ProduceResponse([TopicProduceResponse("orders", partitions)], 10_054)
    assert written == response_frame(ApiKey.PRODUCE, version, 99, encode_response(ApiKey.PRODUCE, version, response))
