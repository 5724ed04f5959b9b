"""AddPartitionsToTxn (API key 24; KIP-98).  Versions 4 and 5 are for calls between brokers (KIP-890)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, int32_array, int64, string


@message
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = int32_array()


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@message
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@message
class AddPartitionsToTxnResult:
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
