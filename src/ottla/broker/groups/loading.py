"""Groups read back from their partition at start, a short slice of the loop's turn at a time.

The broker is ready earlier: requests of a group that is not loaded yet get COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.partitions.partition import Partition
from ottla.groups.shard import GroupShard
from ottla.records.errors import CorruptBatch
from ottla.records.header import LOG_OVERHEAD_BYTES, read_header
from ottla.records.record import first_batch_size_bytes, key_values

# Between two reads of the clock; a record takes some 5 us.
RECORDS_BETWEEN_LOOKS: Final = 16
_READ_BYTES: Final = 256 * 1024


class ShardLoading:
    """Feeds a partition's records, up to the end that it has now, into its shard."""

    def __init__(self, partition: Partition, shard: GroupShard, read_bytes_max: int) -> None:
        self._partition = partition
        self._shard = shard
        self._read_bytes = min(read_bytes_max, _READ_BYTES)
        self._next_offset = partition.log_start_offset
        self._end_offset = partition.log_end_offset
        self._records = self._all_records()
        self.records_count = 0

    def load_some(self) -> bool:
        """Apply the next few records; False when there are no more.

        Raises `OttlaError` or `OSError` when the log cannot be read or holds a record that is not a group record.
        """
        replay = self._shard.replay
        for _ in range(RECORDS_BETWEEN_LOOKS):
            found = next(self._records, None)
            if found is None:
                return False
            key, value = found
            self.records_count += 1
            if key is not None:
                replay(key, value)
        return True

    def _all_records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        while self._next_offset < self._end_offset:
            for batch in self._read_batches():
                yield from key_values(batch)

    def _read_batches(self) -> Iterator[memoryview]:
        """The next whole batches; the place is kept as an offset, so that compaction may replace the files."""
        run = self._partition.read_batches(self._next_offset, self._end_offset, self._read_bytes)
        if run is None:
            self._next_offset = self._end_offset
            return
        data = memoryview(run.file.read_at(run.position, run.length_bytes))
        position = 0
        while len(data) - position >= LOG_OVERHEAD_BYTES:
            size_bytes = first_batch_size_bytes(data[position:])
            if size_bytes > len(data) - position:
                break
            batch = data[position : position + size_bytes]
            yield batch
            position += size_bytes
            self._next_offset = read_header(batch).next_offset
        if position == 0:
            raise CorruptBatch(f"no whole batch at offset {self._next_offset} of {self._partition.topic_partition}")
