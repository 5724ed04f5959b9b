"""Shards read back from their partitions at start, a short slice of the loop's turn at a time.

The broker is ready earlier: requests to a shard that is not loaded yet get COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ottla.broker.partitions.partition import Partition
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.observe.events import fields
from ottla.records.end_marker import stored_end_marker
from ottla.records.errors import CorruptBatch
from ottla.records.header import LOG_OVERHEAD_BYTES, read_header
from ottla.records.record import first_batch_size_bytes, key_values

log = logging.getLogger(__name__)

# Between two reads of the clock; a record takes some 5 us.
RECORDS_BETWEEN_LOOKS: Final = 16
_READ_BYTES: Final = 256 * 1024

# A request waits this long at most, and for the records between two reads of the clock.
SLICE_S: Final = 0.0002
# A turn that took the loop this long between two slices has served requests.
BUSY_TURN_S: Final = 0.00005
# A client that was served once sends its next request soon.
BUSY_FOR_S: Final = 0.005
# Timers of the loop are up to twice as late.  A million offsets are some 2.5 s of work, 12,000 slices: beside clients
# that are always busy they take some 12 s.
PAUSE_S: Final = 0.001


class Replayed(Protocol):
    def replay(self, key: bytes, value: bytes | None, producer_id: int = ...) -> None:
        """Apply one record, which is in the transaction of `producer_id`, if any.

        Raises `OttlaError` for one that is damaged.
        """
        ...

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends a transaction."""
        ...


class ShardLoading:
    """Feeds a partition's records, up to the end that it has now, into its shard."""

    def __init__(self, partition: Partition, shard: Replayed, read_bytes_max: int) -> None:
        self._partition = partition
        self._shard = shard
        self._read_bytes = min(read_bytes_max, _READ_BYTES)
        self._next_offset = partition.log_start_offset
        self._end_offset = partition.log_end_offset
        self._records = self._all_records()
        self.records_count = 0

    def load_some(self) -> bool:
        """Apply the next few records; False when there are no more.

        Raises `OttlaError` or `OSError` when the log cannot be read or holds a record that is not the shard's.
        """
        replay = self._shard.replay
        for _ in range(RECORDS_BETWEEN_LOOKS):
            found = next(self._records, None)
            if found is None:
                return False
            key, value, producer_id = found
            self.records_count += 1
            if key is not None:
                replay(key, value, producer_id)
        return True

    def _all_records(self) -> Iterator[tuple[bytes | None, bytes | None, int]]:
        """Key, value, and the producer id of the transaction that the record is in.

        A marker is applied when the next record is requested: all before it are.
        """
        while self._next_offset < self._end_offset:
            for batch in self._read_batches():
                header = read_header(batch)
                if header.is_control:
                    marker = stored_end_marker(batch)
                    if marker is not None:
                        self._shard.replay_marker(header.producer_id, commits=marker.commits)
                    continue
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                for key, value in key_values(batch):
                    yield key, value, producer_id

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


OnLoaded = Callable[[OttlaError | OSError | None], None]


class Loader:
    """Loads shards one after another, a slice in each turn of the loop, and pauses while others are served.

    The pause is for the flusher's thread, too: it needs the interpreter to start and to end a flush, and would wait for
    it while slice follows slice.  It also yields the processor: the kernel lets a thread that never sleeps use its
    whole time slice of some milliseconds.  Slices are measured by a separate clock (`now_s`): the loop's counts whole
    milliseconds.  `on_loaded` of each gets None, or why its records could not be read.
    """

    def __init__(
        self,
        loaded_event: str,
        loop: asyncio.AbstractEventLoop,
        is_flushing: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        """`loaded_event`: the name of the event in the log when all shards are loaded."""
        self._loaded_event = loaded_event
        self._loop = loop
        self._now_s = now_s
        self._is_flushing = is_flushing
        self._waiting: deque[tuple[ShardLoading, OnLoaded]] = deque()
        self._handle: asyncio.Handle | None = None
        self._left_off_s = 0.0
        self._has_paused = False
        # A flush in progress has priority, once: else a broker that always flushes would never load.
        self._has_yielded = False
        self._busy_until_s = 0.0
        self._started_s = 0.0
        self._records_count = 0

    def add(self, loading: ShardLoading, on_loaded: OnLoaded) -> None:
        self._waiting.append((loading, on_loaded))
        if self._handle is None:
            self._started_s = self._left_off_s = self._now_s()
            self._handle = self._loop.call_soon(self._run_slice)

    def discard(self, loading: ShardLoading) -> None:
        """Load this shard no further; its `on_loaded` is not called."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not loading)

    def stop(self) -> None:
        """Leave the rest unloaded: the broker stops."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run_slice(self) -> None:
        self._handle = None
        started_s = now_s = self._now_s()
        is_flushing = self._is_flushing()
        if is_flushing or (not self._has_paused and started_s - self._left_off_s > BUSY_TURN_S):
            self._busy_until_s = started_s + BUSY_FOR_S
        self._has_yielded = is_flushing and not self._has_yielded
        if self._has_yielded:
            self._pause()
            return
        while self._waiting and now_s - started_s < SLICE_S:
            self._load_some()
            now_s = self._now_s()
        # Loaded state is long-lived: the collector need not walk it again and again.
        gc.freeze()
        self._left_off_s = now_s
        if not self._waiting:
            took_ms = round((now_s - self._started_s) * 1000)
            log.info(self._loaded_event, extra=fields(records_count=self._records_count, took_ms=took_ms))
        elif now_s < self._busy_until_s:
            self._pause()
        else:
            self._has_paused = False
            self._handle = self._loop.call_soon(self._run_slice)

    def _pause(self) -> None:
        self._has_paused = True
        self._handle = self._loop.call_later(PAUSE_S, self._run_slice)

    def _load_some(self) -> None:
        """Load some more of the first shard, or report that it is loaded or cannot be."""
        loading, on_loaded = self._waiting[0]
        failure: OttlaError | OSError | None = None
        try:
            if loading.load_some():
                return
        except (OttlaError, OSError) as error:
            failure = error
        # Before the report, which may discard others.
        self._waiting.popleft()
        self._records_count += loading.records_count
        on_loaded(failure)
