"""DeleteRecords at the leader: the log start moves up here, and then at every live replica before it is answered.

Records that were answered as deleted must not be read again because another replica leads.
"""

from __future__ import annotations

import asyncio

from ottla.broker.limits import PARKED_DELETIONS_MAX
from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NO_OFFSET
from ottla.replication.replica import Role
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import StorageError


class RecordDeletions:
    """Followers take the new log start with their next fetch, and tell theirs with the one after it."""

    def __init__(self, partitions: PartitionTable, directory: LogDirectory) -> None:
        self._partitions = partitions
        self._directory = directory
        self._waiting_count = 0

    async def delete(self, topic: str, index: int, before_offset: int, timeout_ms: int) -> int:
        """See `BrokerContext.delete_records`."""
        partition = self._partitions.find(topic, index)
        if partition is None:
            code = self._partitions.absence_error(topic, index)
            raise RequestError(code, f"{topic}-{index} is not served here")
        if partition.role is not Role.LEADER:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is led by another broker")
        if before_offset == NO_OFFSET:
            before_offset = partition.high_watermark
        if not 0 <= before_offset <= partition.high_watermark:
            problem = f"offset {before_offset} is not in [0, {partition.high_watermark}]"
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, problem)
        try:
            partition.delete_records_before(before_offset)
            # Records that were acknowledged as deleted must not reappear after a crash.
            self._directory.checkpoint()
        except OSError as error:
            raise StorageError(f"{topic}-{index}: the new log start could not be written: {error}") from error
        if partition.low_watermark < before_offset:
            await self._until_deleted(partition, before_offset, timeout_ms)
        return partition.low_watermark

    async def _until_deleted(self, partition: Partition, before_offset: int, timeout_ms: int) -> None:
        """Wait for the live followers."""
        if self._waiting_count >= PARKED_DELETIONS_MAX:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "too many deletions wait for followers")
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_ended(error_code: int) -> None:
            if not ended.done():  # its time may have passed in this turn of the loop
                ended.set_result(error_code)

        partition.park_deletion(before_offset, on_ended)
        self._waiting_count += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                code = ErrorCode(await ended)
        except TimeoutError:
            problem = f"{partition.topic_partition}: a live replica still has records below {before_offset}"
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, problem) from None
        finally:
            self._waiting_count -= 1
            partition.forget_deletion(on_ended)
        if code is not ErrorCode.NONE:
            raise RequestError(code, f"{partition.topic_partition} is not led here any more")
