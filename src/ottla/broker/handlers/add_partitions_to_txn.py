"""AddPartitionsToTxn (key 24), v0-v5.

v0-v3: a producer adds partitions to its transaction, which that opens.  All of them or none: where one does not exist
(UNKNOWN_TOPIC_OR_PARTITION) the others get OPERATION_NOT_ATTEMPTED.
v4 and above: other brokers add or verify, many transactional ids at once.

A call that has to wait for the markers of the last transaction waits up to a second, and is answered
CONCURRENT_TRANSACTIONS after that; Apache Kafka answers so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.runtime.steps import Steps, parts_of
from ottla.transactions.commands import AddPartitions, VerifyPartitions

_MANY_FROM_VERSION: Final = 4
_FENCED_FROM_VERSION: Final = 2
_PARTITIONS_PER_STEP: Final = 4_096


def answer(
    request: AddPartitionsToTxnRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[AddPartitionsToTxnResponse], None],
) -> Steps[None]:
    if call.api_version >= _MANY_FROM_VERSION:
        yield from _answer_broker(request.transactions, context, reply)
        return
    topics = request.v3_and_below_topics

    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        for index in topic.partitions:
            yield
            partition = TopicPartition(topic.name, index)
            error = _problem_of(partition, context)
            if error is not ErrorCode.NONE:
                refused[partition] = error
    results: list[AddPartitionsToTxnTopicResult] = []
    if refused:
        yield from _make_results(topics, results, refused, ErrorCode.OPERATION_NOT_ATTEMPTED)
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
        return
    yield from _make_results(topics, results)
    command = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        (yield from _partitions_of(topics)),
        knows_fenced=call.api_version >= _FENCED_FROM_VERSION,
        connection=call.connection_number,
    )

    def respond_alike(error: ErrorCode) -> None:
        _set_error(results, error)
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    context.transactions.submit(command, respond_alike)


def _answer_broker(
    transactions: Sequence[AddPartitionsToTxnTransaction],
    context: BrokerContext,
    reply: Callable[[AddPartitionsToTxnResponse], None],
) -> Steps[None]:
    results = [AddPartitionsToTxnResult(each.transactional_id, []) for each in transactions]

    def respond(errors: list[ErrorCode]) -> None:
        for result, error in zip(results, errors, strict=True):
            _set_error(result.topic_results, error)
        reply(AddPartitionsToTxnResponse(results_by_transaction=results))

    for result, each in zip(results, transactions, strict=True):
        yield from _make_results(each.topics, result.topic_results)
    gathering: Gathering[ErrorCode] = Gathering(len(transactions), respond)
    for place, each in enumerate(transactions):
        yield
        partitions = yield from _partitions_of(each.topics)
        identity = (each.transactional_id, each.producer_id, each.producer_epoch, partitions)
        command = VerifyPartitions(*identity) if each.verify_only else AddPartitions(*identity, knows_fenced=False)
        context.transactions.submit(command, gathering.place(place))


def _problem_of(partition: TopicPartition, context: BrokerContext) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.topics.by_name.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> Steps[frozenset[TopicPartition]]:
    found: set[TopicPartition] = set()
    for topic in topics:
        for part in parts_of(topic.partitions, _PARTITIONS_PER_STEP):
            yield
            found.update(TopicPartition(topic.name, index) for index in part)
    return frozenset(found)


def _make_results(
    topics: Sequence[AddPartitionsToTxnTopic],
    results: list[AddPartitionsToTxnTopicResult],
    refused: Mapping[TopicPartition, ErrorCode] = {},
    otherwise: ErrorCode = ErrorCode.NONE,
) -> Steps[None]:
    """Add one for each topic to `results`.  They are made before the coordinator answers: its answer is one turn."""
    for topic in topics:
        each: list[AddPartitionsToTxnPartitionResult] = []
        for part in parts_of(topic.partitions, _PARTITIONS_PER_STEP):
            yield
            codes = [refused.get(TopicPartition(topic.name, index), otherwise) for index in part]
            each += map(AddPartitionsToTxnPartitionResult, part, codes)
        results.append(AddPartitionsToTxnTopicResult(topic.name, each))


def _set_error(results: Sequence[AddPartitionsToTxnTopicResult], error: ErrorCode) -> None:
    if error is ErrorCode.NONE:
        return
    for topic in results:
        for partition in topic.results_by_partition:
            partition.partition_error_code = error
