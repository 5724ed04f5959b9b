"""AddPartitionsToTxn (key 24), v0-v5.

v0-v3: a producer adds partitions to its transaction, which that opens.  All of them or none: where one does not exist
(UNKNOWN_TOPIC_OR_PARTITION) the others get OPERATION_NOT_ATTEMPTED.
v4 and above: other brokers add or verify, many transactional ids at once.

A call that has to wait for the markers of the last transaction waits up to a second, and is answered
CONCURRENT_TRANSACTIONS after that; Apache Kafka answers so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ottla.runtime.steps import Steps
from ottla.transactions.commands import AddPartitions, VerifyPartitions

_MANY_FROM_VERSION: Final = 4
_FENCED_FROM_VERSION: Final = 2


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
    if refused:
        results = _results(topics, lambda partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED))
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
        return
    command = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _partitions_of(topics),
        knows_fenced=call.api_version >= _FENCED_FROM_VERSION,
        connection=call.connection_number,
    )

    def respond_alike(error: ErrorCode) -> None:
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_same_results(topics, error)))

    context.transactions.submit(command, respond_alike)


def _answer_broker(
    transactions: Sequence[AddPartitionsToTxnTransaction],
    context: BrokerContext,
    reply: Callable[[AddPartitionsToTxnResponse], None],
) -> Steps[None]:
    def respond(errors: list[ErrorCode]) -> None:
        results = [
            AddPartitionsToTxnResult(each.transactional_id, _same_results(each.topics, error))
            for each, error in zip(transactions, errors, strict=True)
        ]
        reply(AddPartitionsToTxnResponse(results_by_transaction=results))

    gathering: Gathering[ErrorCode] = Gathering(len(transactions), respond)
    for place, each in enumerate(transactions):
        yield
        identity = (each.transactional_id, each.producer_id, each.producer_epoch, _partitions_of(each.topics))
        command = VerifyPartitions(*identity) if each.verify_only else AddPartitions(*identity, knows_fenced=False)
        context.transactions.submit(command, gathering.place(place))


def _problem_of(partition: TopicPartition, context: BrokerContext) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.topics.by_name.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, code_of(TopicPartition(topic.name, index)))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _same_results(topics: Sequence[AddPartitionsToTxnTopic], error: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return _results(topics, lambda _: error)
