"""DeleteRecords at the leader: the log start moves up here, and then at every live replica before it is answered.

Records that were answered as deleted must not be read again because another replica leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from ottla.broker.net.limits import PARKED_DELETIONS_MAX
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.replication.replica import Role
from ottla.runtime.loop_offload import LoopOffload
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import StorageError


class RecordDeletions:
    """Followers take the new log start with their next fetch, and report theirs with the one after it."""

    def __init__(self, partitions: PartitionTable, directory: LogDirectory) -> None:
        self._partitions = partitions
        self._directory = directory
        self.waiting_count = 0

    async def delete(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Mapping[TopicPartition, int | OttlaError]:
        """See `RecordDeletions.delete` of the context."""
        turn = LoopOffload()
        found: dict[TopicPartition, int | OttlaError] = {}
        started: dict[TopicPartition, tuple[Partition, int]] = {}
        for topic_partition, before_offset in before.items():
            try:
                started[topic_partition] = self._start(topic_partition, before_offset)
            except OttlaError as error:
                found[topic_partition] = error
            await turn.pause()
        try:
            # Records that were acknowledged as deleted must not reappear after a crash: one checkpoint for all.
            await self._directory.checkpoint_in_steps(turn)
        except OSError as error:
            for each in started:
                found[each] = StorageError(f"{each}: the new log start could not be written: {error}")
            return found
        waits: list[tuple[TopicPartition, Partition, int]] = []
        for topic_partition, (partition, before_offset) in started.items():
            if partition.low_watermark < before_offset:
                waits.append((topic_partition, partition, before_offset))
            else:
                found[topic_partition] = partition.low_watermark
            await turn.pause()
        if waits:
            found.update(await self._until_deleted(waits, timeout_ms))
        return found

    def _start(self, topic_partition: TopicPartition, before_offset: int) -> tuple[Partition, int]:
        """Move the log start, in memory; returns the offset that is meant."""
        partition = self._partitions.find(*topic_partition)
        if partition is None:
            code = self._partitions.absence_error(*topic_partition)
            raise RequestError(code, f"{topic_partition} is not served here")
        if partition.role is not Role.LEADER:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is led by another broker")
        if before_offset == NO_OFFSET:
            before_offset = partition.high_watermark
        if not 0 <= before_offset <= partition.high_watermark:
            problem = f"offset {before_offset} is not in [0, {partition.high_watermark}]"
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, problem)
        partition.delete_records_before(before_offset)
        return partition, before_offset

    async def _until_deleted(
        self, waits: Sequence[tuple[TopicPartition, Partition, int]], timeout_ms: int
    ) -> Mapping[TopicPartition, int | OttlaError]:
        """Wait for the live followers of all of them together."""
        found: dict[TopicPartition, int | OttlaError] = {}
        room = max(PARKED_DELETIONS_MAX - self.waiting_count, 0)
        for topic_partition, _, _ in waits[room:]:
            found[topic_partition] = RequestError(ErrorCode.REQUEST_TIMED_OUT, "too many deletions wait for followers")
        waits = waits[:room]
        if not waits:
            return found
        loop = asyncio.get_running_loop()
        ends: list[asyncio.Future[int]] = [loop.create_future() for _ in waits]
        on_ended = [partial(_end, end) for end in ends]
        for (_, partition, before_offset), call in zip(waits, on_ended, strict=True):
            partition.waiting.park_deletion(before_offset, call)
        self.waiting_count += len(waits)
        try:
            await asyncio.wait(ends, timeout=max(timeout_ms, 0) / 1000)
        finally:
            self.waiting_count -= len(waits)
            for (_, partition, _), call in zip(waits, on_ended, strict=True):
                partition.waiting.forget_deletion(call)
        for (topic_partition, partition, before_offset), end in zip(waits, ends, strict=True):
            if not end.done():
                problem = f"{topic_partition}: a live replica still has records below {before_offset}"
                found[topic_partition] = RequestError(ErrorCode.REQUEST_TIMED_OUT, problem)
            elif code := ErrorCode(end.result()):
                found[topic_partition] = RequestError(code, f"{topic_partition} is not led here any more")
            else:
                found[topic_partition] = partition.low_watermark
        return found


def _end(end: asyncio.Future[int], error_code: int) -> None:
    if not end.done():  # its time may have passed in this turn of the loop
        end.set_result(error_code)
