"""InitProducerId, DescribeCluster and DeleteRecords."""

from __future__ import annotations

import pytest

from ottla.coordination.configs import ConfigEntity
from ottla.coordination.tree import ConnectionLoss
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.schemas.describe_cluster import (
    NO_AUTHORIZED_OPERATIONS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.handlers.small_broker import HOST, NODE_ID, PORT, CountedIds, SmallBroker
from tests.unit.broker.live_brokers import live


async def init(broker: SmallBroker, version: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
    return await broker.ask(ApiKey.INIT_PRODUCER_ID, version, request, InitProducerIdResponse)


@pytest.mark.parametrize("version", range(5))
async def test_producer_gets_an_id_of_its_own_and_epoch_0(version: int) -> None:
    broker = SmallBroker()
    first = await init(broker, version, InitProducerIdRequest())
    second = await init(broker, version, InitProducerIdRequest())
    assert first == InitProducerIdResponse(producer_id=1001, producer_epoch=0)
    assert second == InitProducerIdResponse(producer_id=1002, producer_epoch=0)


@pytest.mark.parametrize("version", range(5))
async def test_producer_gets_a_retriable_error_while_the_tree_does_not_answer(version: int) -> None:
    class CutOff(CountedIds):
        async def next(self) -> ProducerId:
            raise ConnectionLoss("/latest_producer_id_block")

    broker = SmallBroker()
    broker.producer_ids = CutOff()
    result = await init(broker, version, InitProducerIdRequest())
    assert result == InitProducerIdResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


@pytest.mark.parametrize("version", [3, 4])
async def test_producer_that_had_an_id_gets_a_new_one(version: int) -> None:
    request = InitProducerIdRequest(producer_id=7, producer_epoch=3)
    assert (await init(SmallBroker(), version, request)).producer_id == 1001


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("had", [(7, -1), (-1, 3)])
async def test_id_without_epoch_and_epoch_without_id_are_refused(version: int, had: tuple[int, int]) -> None:
    request = InitProducerIdRequest(producer_id=had[0], producer_epoch=had[1])
    result = await init(SmallBroker(), version, request)
    assert result == InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("transactional_id", "error"), [("", ErrorCode.INVALID_REQUEST), ("payments", ErrorCode.NOT_COORDINATOR)]
)
async def test_transactional_producer_needs_an_id_and_its_coordinator(
    version: int, transactional_id: str, error: ErrorCode
) -> None:
    result = await init(SmallBroker(), version, InitProducerIdRequest(transactional_id, 60_000))
    assert result == InitProducerIdResponse(0, error, -1, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("with_operations", [False, True])
async def test_cluster_is_described(version: int, with_operations: bool) -> None:
    broker = SmallBroker()
    response = await broker.ask(
        ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(with_operations), DescribeClusterResponse
    )
    assert response == DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=NODE_ID,
        brokers=[DescribeClusterBroker(NODE_ID, HOST, PORT, "rack-1")],
        cluster_authorized_operations=0b1_1111_1010_0000 if with_operations else NO_AUTHORIZED_OPERATIONS,
    )


@pytest.mark.parametrize(("version", "is_fenced"), [(0, False), (1, False), (2, True)])
async def test_broker_that_may_not_lead_is_fenced(version: int, is_fenced: bool) -> None:
    broker = SmallBroker()
    broker.brokers.live = live(NODE_ID, 2)
    broker.brokers.may_lead = False
    response = await broker.ask(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(), DescribeClusterResponse)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(NODE_ID, is_fenced), (2, False)]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_other_endpoints_than_brokers_are_refused(endpoint_type: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = await SmallBroker().ask(ApiKey.DESCRIBE_CLUSTER, 1, request, DescribeClusterResponse)
    assert response.error_code == code
    assert response.brokers == []


async def delete(
    broker: SmallBroker, version: int, offset: int, *, topic: str = "t", index: int = 0
) -> DeleteRecordsPartitionResult:
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])], 1000)
    response = await broker.ask(ApiKey.DELETE_RECORDS, version, request, DeleteRecordsResponse)
    return response.topics[0].partitions[0]


def with_records() -> SmallBroker:
    broker = SmallBroker()
    broker.add_topic("t")
    broker.append("t", 1, 2, 3)
    broker.append("t", 4, 5)
    return broker


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("offset", "low_watermark"), [(2, 2), (5, 5), (-1, 5), (0, 0)])
async def test_log_start_moves_up(version: int, offset: int, low_watermark: int) -> None:
    broker = with_records()
    assert await delete(broker, version, offset) == DeleteRecordsPartitionResult(0, low_watermark, 0)
    assert broker.partition("t").log_start_offset == low_watermark


async def test_log_start_never_moves_down() -> None:
    broker = with_records()
    await delete(broker, 2, 3)
    assert await delete(broker, 2, 1) == DeleteRecordsPartitionResult(0, 3, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_offset_above_the_high_watermark_is_out_of_range(version: int) -> None:
    assert await delete(with_records(), version, 6) == DeleteRecordsPartitionResult(
        0, -1, ErrorCode.OFFSET_OUT_OF_RANGE
    )


@pytest.mark.parametrize(("topic", "index"), [("t", 1), ("unknown", 0)])
async def test_records_of_an_unknown_partition_cannot_be_deleted(topic: str, index: int) -> None:
    result = await delete(with_records(), 2, 1, topic=topic, index=index)
    assert result == DeleteRecordsPartitionResult(index, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted() -> None:
    broker = with_records()
    broker.overrides = {ConfigEntity.topic("t"): {"cleanup.policy": "compact"}}
    assert await delete(broker, 2, 1) == DeleteRecordsPartitionResult(0, -1, ErrorCode.POLICY_VIOLATION)


async def test_records_of_an_internal_topic_cannot_be_deleted() -> None:
    broker = SmallBroker()
    broker.add_topic("__consumer_offsets")
    result = await delete(broker, 2, 0, topic="__consumer_offsets")
    assert result == DeleteRecordsPartitionResult(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)
