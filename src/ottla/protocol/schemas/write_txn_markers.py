"""WriteTxnMarkers (API key 27; KIP-98, KIP-1228): from coordinators to the leaders of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, boolean, int8, int16, int32, int32_array, int64, string


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@dataclass(slots=True)
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@dataclass(slots=True)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True)
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@dataclass(slots=True)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
