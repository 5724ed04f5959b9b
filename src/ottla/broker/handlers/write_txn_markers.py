"""WriteTxnMarkers (key 27), v1-v2.

Coordinators and administrators end transactions in the partitions that are led here.
Answered when each marker is on all in-sync replicas.  v2 names the rules of the epoch (KIP-1228): with those of KIP-890
a marker's epoch is above that of the records, and an equal one is a repeat.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.transaction import NEXT_EPOCH

_NO_ID: Final = ""


async def handle(request: WriteTxnMarkersRequest, context: BrokerContext, call: Call) -> WriteTxnMarkersResponse:
    turn = LoopOffload()
    results: list[WritableTxnMarkerResult] = []
    waiting: list[asyncio.Future[None]] = []
    for wanted in request.markers:
        marker = _marker(wanted)
        topics: list[WritableTxnMarkerTopicResult] = []
        results.append(WritableTxnMarkerResult(wanted.producer_id, topics))
        for topic in wanted.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            for index in topic.partition_indexes:
                await turn.pause()
                result = WritableTxnMarkerPartitionResult(index)
                partitions.append(result)
                waiting.append(_write(marker, TopicPartition(topic.name, index), result, context))
    for each in waiting:
        await each
    return WriteTxnMarkersResponse(results)


def _marker(wanted: WritableTxnMarker) -> EndMarkers:
    return EndMarkers(
        _NO_ID,
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.transaction_version >= NEXT_EPOCH,
        wanted.coordinator_epoch,
        frozenset(),
    )


def _write(
    marker: EndMarkers, partition: TopicPartition, result: WritableTxnMarkerPartitionResult, context: BrokerContext
) -> asyncio.Future[None]:
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(error: ErrorCode) -> None:
        result.error_code = error
        if not written.done():
            written.set_result(None)

    context.markers.write(partition, marker, on_done)
    return written
