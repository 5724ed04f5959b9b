"""Requests about transactional ids: their producers, transactions, markers, listings and descriptions."""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.guard import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    ID_DENIED,
    TOPIC_DENIED,
    Caller,
    Outcome,
    Passed,
    Refused,
    divided,
)
from ottla.broker.context import BrokerContext
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.schemas.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import Operation, ResourceType

_OF_BROKERS_FROM: Final = 4
_NO_EPOCH: Final = -1


def _may_write(caller: Caller, transactional_id: str) -> bool:
    return caller.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(request: InitProducerIdRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
    yield
    if request.transactional_id is not None:
        if _may_write(caller, request.transactional_id):
            return Passed(request)
        return Refused(InitProducerIdResponse(error_code=ID_DENIED, producer_epoch=_NO_EPOCH))
    if caller.access.rights.allows_any(Operation.WRITE, ResourceType.TOPIC) or caller.allows_cluster(
        Operation.IDEMPOTENT_WRITE
    ):
        return Passed(request)
    return Refused(InitProducerIdResponse(error_code=CLUSTER_DENIED, producer_epoch=_NO_EPOCH))


def add_partitions_to_txn(request: AddPartitionsToTxnRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """WRITE on the transactional id and on each topic: where one topic is refused nothing is added.

    From version 4 on CLUSTER_ACTION: the broker that sends it has checked its client.
    """
    if caller.api_version >= _OF_BROKERS_FROM:
        yield
        if caller.allows_cluster(Operation.CLUSTER_ACTION):
            return Passed(request)
        return Refused(AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED))
    topics = request.v3_and_below_topics
    if not _may_write(caller, request.v3_and_below_transactional_id):
        codes = dict.fromkeys((topic.name for topic in topics), ID_DENIED)
    else:
        _, denied = yield from divided(topics, lambda topic: caller.allows_topic(Operation.WRITE, topic.name))
        if not denied:
            return Passed(request)
        codes = dict.fromkeys((topic.name for topic in denied), TOPIC_DENIED)
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        code = codes.get(topic.name, ErrorCode.OPERATION_NOT_ATTEMPTED)
        partitions = [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
        results.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
        yield
    return Refused(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def add_offsets_to_txn(request: AddOffsetsToTxnRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """WRITE on the transactional id, READ on the group."""
    yield
    if not _may_write(caller, request.transactional_id):
        return Refused(AddOffsetsToTxnResponse(error_code=ID_DENIED))
    if not caller.allows_group(Operation.READ, request.group_id):
        return Refused(AddOffsetsToTxnResponse(error_code=GROUP_DENIED))
    return Passed(request)


def end_txn(request: EndTxnRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """WRITE on the transactional id."""
    yield
    if _may_write(caller, request.transactional_id):
        return Passed(request)
    return Refused(EndTxnResponse(error_code=ID_DENIED))


def write_txn_markers(request: WriteTxnMarkersRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """ALTER on the cluster, of administrators, or CLUSTER_ACTION, of brokers."""
    if caller.sees_cluster(Operation.ALTER) or caller.allows_cluster(Operation.CLUSTER_ACTION):
        return Passed(request)
    results: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        topics: list[WritableTxnMarkerTopicResult] = []
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
        for topic in marker.topics:
            partitions = [WritableTxnMarkerPartitionResult(index, CLUSTER_DENIED) for index in topic.partition_indexes]
            topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            yield
    return Refused(WriteTxnMarkersResponse(results))


def describe_transactions(
    request: DescribeTransactionsRequest, caller: Caller, context: BrokerContext
) -> Steps[Outcome]:
    """DESCRIBE on each transactional id; topics without DESCRIBE are left out."""
    passed, denied = yield from divided(
        request.transactional_ids,
        lambda name: caller.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
    )
    refused = [DescribedTransactionState(ID_DENIED, name) for name in dict.fromkeys(denied)]
    if not passed:
        return Refused(DescribeTransactionsResponse(transaction_states=refused))
    request.transactional_ids = passed

    def finish(response: DescribeTransactionsResponse) -> Steps[None]:
        for state in response.transaction_states:
            state.topics = [
                each for each in state.topics if caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
            ]
            yield
        response.transaction_states += refused

    return Passed(request, finish)


def list_transactions(request: ListTransactionsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each transactional id: the others are left out."""
    yield

    def finish(response: ListTransactionsResponse) -> Steps[None]:
        seen = []
        for state in response.transaction_states:
            if caller.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id):
                seen.append(state)
            yield
        response.transaction_states = seen

    return Passed(request, finish)
