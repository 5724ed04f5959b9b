"""DescribeLogDirs (key 35), v1-v4.

The one data directory: its path, the size of each partition's segments, and from v4 on the total and usable bytes of
its file system (KIP-827).  Partitions that are asked for and not on this broker are left out, as those whose log takes
no records any more; null asks for all.  The lag is 0, as Apache Kafka's is for every replica but a future one, and
there is none of those in one directory.  A directory that is offline answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_PARTITIONS_OF_TURN: Final = 200


async def handle(request: DescribeLogDirsRequest, broker: BrokerContext, call: Call) -> DescribeLogDirsResponse:
    try:
        state = broker.log_directory()
    except OSError:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR)])
    if not state.is_online:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, state.path)])
    sizes: dict[str, list[DescribeLogDirsPartition]] = {}
    for number, partition in enumerate(_wanted(request, broker), 1):
        size_bytes = partition.size_bytes
        found = DescribeLogDirsPartition(partition.index, size_bytes, offset_lag=0, is_future_key=False)
        sizes.setdefault(partition.topic_partition.topic, []).append(found)
        if number % _PARTITIONS_OF_TURN == 0:
            await asyncio.sleep(0)
    topics = [DescribeLogDirsTopic(name, partitions) for name, partitions in sizes.items()]
    result = DescribeLogDirsResult(
        log_dir=state.path, topics=topics, total_bytes=state.total_bytes, usable_bytes=state.usable_bytes
    )
    return DescribeLogDirsResponse(results=[result])


def _wanted(request: DescribeLogDirsRequest, broker: BrokerContext) -> Iterable[Partition]:
    if request.topics is None:
        return [partition for partition in broker.partitions if partition.takes_records]
    named = {(topic.topic, index): None for topic in request.topics for index in topic.partitions}
    found = (broker.partitions.find(name, index) for name, index in named)
    return [partition for partition in found if partition is not None and partition.takes_records]
