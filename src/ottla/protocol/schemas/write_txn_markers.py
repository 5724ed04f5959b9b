"""WriteTxnMarkers (API key 27; KIP-98, KIP-1228): from coordinators to the leaders of partitions."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int8, int16, int32, int32_array, int64, string


@message
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@message
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@message
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@message
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@message
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@message
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
