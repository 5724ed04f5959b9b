"""DescribeLogDirs (key 35), v1-v4.

The one data directory: its path, the size of each partition's segments, and from v4 on the total and usable bytes of
its file system (KIP-827).  Partitions that are asked for and not on this broker are left out, as those whose log takes
no records any more; null asks for all.  The lag is 0, as Apache Kafka's is for every replica but a future one, and
there is none of those in one directory.  A directory that is offline answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import BrokerContext, Call
from ottla.broker.partitions.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload


async def handle(request: DescribeLogDirsRequest, context: BrokerContext, call: Call) -> DescribeLogDirsResponse:
    try:
        state = context.log_directory.state()
    except OSError:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR)])
    if not state.is_online:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, state.path)])
    sizes: dict[str, list[DescribeLogDirsPartition]] = {}
    turn = LoopOffload()
    for partition in await _wanted(request, context, turn):
        if not partition.takes_records:
            continue
        size_bytes = partition.size_bytes
        found = DescribeLogDirsPartition(partition.index, size_bytes, offset_lag=0, is_future_key=False)
        sizes.setdefault(partition.topic_partition.topic, []).append(found)
        await turn.pause()
    topics = [DescribeLogDirsTopic(name, partitions) for name, partitions in sizes.items()]
    result = DescribeLogDirsResult(
        log_dir=state.path, topics=topics, total_bytes=state.total_bytes, usable_bytes=state.usable_bytes
    )
    return DescribeLogDirsResponse(results=[result])


async def _wanted(request: DescribeLogDirsRequest, context: BrokerContext, turn: Offload) -> Iterable[Partition]:
    """Each once, however often it is named."""
    if request.topics is None:
        return list(context.partitions)
    found: dict[Partition, None] = {}
    for topic in request.topics:
        for index in topic.partitions:
            partition = context.partitions.find(topic.topic, index)
            if partition is not None:
                found[partition] = None
            await turn.pause()
        await turn.pause()
    return found
