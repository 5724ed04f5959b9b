"""One partition's log: appends, rolls, the stable end, truncation.  Reading is in `log_reader`.

All calls come from the event loop's thread and none of them waits for a flush.  Invariants, with every `*_end`
exclusive: log_start_offset <= log_end_offset, flushed_end <= log_end_offset, stable_end <= log_end_offset; the ends
never go back but by `truncate_to`; the log end moves right after the data was written, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import UUID

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from ottla.observe.story import Story
from ottla.records.header import BASE_OFFSET, LEADER_EPOCH, LEADER_EPOCH_AT
from ottla.runtime.disk import Disk, FileRun
from ottla.storage.errors import BatchTooLarge, StorageError
from ottla.storage.log import log_reader, log_roll, retention, truncation
from ottla.storage.log.log_failure import undo_write, write_failed
from ottla.storage.log.log_parts import LogHost, LogParts
from ottla.storage.log.read_places import ReadPlaces
from ottla.storage.log.unsynced_files import UnsyncedFiles
from ottla.storage.log_config import FOREVER, LogConfig
from ottla.storage.producers.producer_snapshot import write_snapshot
from ottla.storage.segment.index_cache import IndexCache
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList
from ottla.storage.segment.time_index import TimestampOffset

_SEQUENCE_MASK: Final = 0x7FFFFFFF


class Log:
    """One partition; see the module's head for what holds between its offsets."""

    __slots__ = (
        "_active",
        "_cache",
        "_caches_end",
        "_epoch_is_new",
        "config",
        "dirty_since_ms",
        "disk",
        "epochs",
        "failure",
        "flush_at_offset",
        "flush_ms_max",
        "flushed_end",
        "host",
        "is_deleted",
        "is_dirty",
        "is_os_policy",
        "is_swapping",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "on_stable",
        "path",
        "places",
        "producers",
        "removed_segments",
        "segments",
        "stable_end",
        "story",
        "topic_id",
        "topic_partition",
        "truncated_segments",
        "truncations_count",
        "unsynced",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        parts: LogParts,
        host: LogHost,
        cache: IndexCache,
    ) -> None:
        self.disk = disk
        self.host = host
        self._cache = cache
        self._caches_end = parts.caches_end
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = SegmentList(parts.segments)
        self._active = self.segments.active
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.flushed_end = parts.flushed_end
        self.producers = parts.producers
        self.epochs = parts.epochs
        latest = self.epochs.latest_epoch
        self.leader_epoch = latest if latest is not None else NO_LEADER_EPOCH
        self._epoch_is_new = False
        self.is_dirty = False
        self.dirty_since_ms = 0
        self.is_deleted = False
        # Cleaned segments are being put in place of others: none may go until that is done.
        self.is_swapping = False
        self.truncations_count = 0
        self.failure: StorageError | None = None
        self.on_stable: Callable[[Log], None] | None = None
        self.unsynced = UnsyncedFiles()
        self.truncated_segments: list[Segment] = []
        self.removed_segments: list[Segment] = []
        self.stable_end = self.flushed_end
        self.places = ReadPlaces(self._active, self._active.size_bytes)
        self.flush_at_offset = FOREVER
        self._take_config(parts.config)
        self.story = Story(str(topic_partition))
        self.note("opened", log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)

    # --- appending ------------------------------------------------------------------------------------------

    def append(self, batch: memoryview, header: tuple[int, ...], now_ms: int) -> int:
        """Append ONE whole batch (v2, checked by the caller, in a writable buffer) and return its base offset.

        Base offset and leader epoch are stamped in place.  A duplicate of an idempotent producer appends nothing
        and gives the original base offset, so the caller always waits for `base + delta + 1 <= stable_end`.
        Raises `AppendRefused` or `StorageError`; the log is then as it was.
        """
        if self.failure is not None:
            raise self.failure
        last_offset_delta = header[6]
        producer_id = header[9]
        if producer_id >= 0:
            first_sequence = header[11]
            last_sequence = (first_sequence + last_offset_delta) & _SEQUENCE_MASK
            original = self.producers.check(producer_id, header[10], first_sequence, last_sequence)
            if original is not None:
                return original
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        size_bytes = len(batch)
        max_timestamp_ms = header[8]
        segment = self._active
        if (
            segment.size_bytes + size_bytes > segment.roll_at_bytes
            or max_timestamp_ms > segment.roll_at_timestamp_ms
            or last_offset > segment.last_offset_max
            or now_ms > segment.roll_at_now_ms
        ):
            segment = self._make_room(size_bytes, now_ms)
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, self.leader_epoch)
        if self._epoch_is_new:
            self._write_epoch(base_offset)
        places = self.places
        places.appended_offset = base_offset
        places.appended_position = segment.size_bytes
        try:
            segment.append(batch, size_bytes, last_offset, max_timestamp_ms)
        except OSError as error:
            raise undo_write(self, segment, error) from error
        self.log_end_offset = end_offset = last_offset + 1
        if producer_id >= 0:
            self.producers.update(
                producer_id, header[10], first_sequence, last_sequence, base_offset, last_offset_delta, now_ms
            )
        if not self.is_dirty:
            self.is_dirty = True
            self.host.mark_dirty(self)
        if end_offset >= self.flush_at_offset:
            self.flush_at_offset = FOREVER
            self.host.mark_due(self)
        if self.is_os_policy:
            self.stable_end = end_offset
            if self.on_stable is not None:
                self.on_stable(self)
        return base_offset

    def _make_room(self, size_bytes: int, now_ms: int) -> Segment:
        if size_bytes > self.config.segment_bytes:
            raise BatchTooLarge(
                f"a batch of {size_bytes} bytes does not fit into a segment of {self.config.segment_bytes} bytes",
                hint="raise segment.bytes or send smaller batches",
            )
        if self._active.size_bytes > 0:
            self.roll(now_ms)
        return self._active

    # --- leader epochs --------------------------------------------------------------------------------------

    def start_epoch(self, epoch: int) -> None:
        """Later appends carry `epoch`; its line in the checkpoint is written with the first of them."""
        assert epoch >= self.leader_epoch, "a leader epoch never goes back"
        latest = self.epochs.latest_epoch
        self.leader_epoch = epoch
        self._epoch_is_new = latest is None or epoch > latest
        self.note("led", leader_epoch=epoch, log_end_offset=self.log_end_offset)

    def _write_epoch(self, base_offset: int) -> None:
        """The epoch's line is in its file before the batch is, and durable with it: both ride the same flush."""
        try:
            self.unsynced.add_checkpoint(self.epochs.assign_unsynced(self.leader_epoch, base_offset))
        except OSError as error:
            raise write_failed(self, error) from error
        self._epoch_is_new = False

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, where it ended), (-1, -1) when there is none.

        The epoch that was started last ends at the log's end, also before its first batch.
        """
        if epoch == self.leader_epoch and epoch >= 0:
            return epoch, self.log_end_offset
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was appended, -1 when it is not known."""
        return self.epochs.epoch_of(offset)

    # --- rolling --------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Close the active segment and open the next one at the log end; nothing happens when it is empty."""
        if self._active.size_bytes == 0:
            return
        self._active = new = log_roll.roll(self, now_ms)
        self.story.add(now_ms, "rolled", base_offset=new.base_offset)
        self.host.mark_due(self)

    def new_segment(self, base_offset: int, created_ms: int) -> Segment:
        """A segment of this log that is not in its list yet."""
        return Segment(self.disk, self.path, base_offset, self.config, self._cache, created_ms)

    # --- flushing (see log_flush) ---------------------------------------------------------------------------

    def tell_stable(self) -> None:
        """Call `on_stable` after a flush (under policy `os` the append has told already)."""
        if not self.is_os_policy and self.on_stable is not None and not self.is_deleted:
            self.on_stable(self)

    def take_offline(self, failure: StorageError) -> None:
        """No further append; reads see only what was flushed."""
        self.failure = failure
        self.note("taken_offline", flushed_end=self.flushed_end, log_end_offset=self.log_end_offset)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings.  The stable end never goes back: leaving policy `os` it waits for the flushed end."""
        if self.config.was_compacted:
            config = replace(config, was_compacted=True)
        self._take_config(config)
        self._active.configure(config)
        if self.stable_end == self.log_end_offset:
            self.places.set_stable(self._active, self._active.size_bytes)
        if self.is_os_policy and self.stable_end < self.log_end_offset:
            self.stable_end = self.log_end_offset
            if self.on_stable is not None:
                self.on_stable(self)
        if self.flushed_end < self.log_end_offset:
            self.host.mark_due(self)

    def _take_config(self, config: LogConfig) -> None:
        self.config = config
        self.is_os_policy = config.flush_policy == "os"
        self.flush_ms_max = config.flush_ms_max
        self.flush_at_offset = self.flushed_end + config.flush_messages_max

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self, start_offset: int, limit_offset: int, size_bytes_max: int, *, whole_first_batch: bool
    ) -> FileRun | None:
        """Batches from the one that holds `start_offset`, all below `limit_offset`, in one segment's file.

        At most `size_bytes_max` bytes, which may cut the last batch as Apache Kafka does; the first one is whole
        if `whole_first_batch`, else None is returned when it does not fit.  None means that there is nothing.
        """
        return log_reader.read(self, start_offset, limit_offset, size_bytes_max, whole_first_batch)

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int | None = None) -> TimestampOffset | None:
        """The first record at or after a time, below `limit_offset` (the stable end unless given)."""
        return log_reader.offset_for_timestamp(self, timestamp_ms, self._limit(limit_offset))

    def offset_of_max_timestamp(self, limit_offset: int | None = None) -> TimestampOffset | None:
        """The first record with the greatest timestamp, below `limit_offset` (the stable end unless given)."""
        return log_reader.offset_of_max_timestamp(self, self._limit(limit_offset))

    def _limit(self, limit_offset: int | None) -> int:
        return self.stable_end if limit_offset is None else limit_offset

    @property
    def active_base_offset(self) -> int:
        """Where the segment begins that takes the batches; those below lie in closed segments."""
        return self._active.base_offset

    @property
    def size_bytes(self) -> int:
        """All segments' `.log` files."""
        return sum(segment.size_bytes for segment in self.segments)

    # --- taking away ----------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> None:
        """DeleteRecords: `log_start_offset` moves up to `offset`, at most to the stable end."""
        retention.delete_records_before(self, offset)
        self.note("records_deleted", log_start_offset=self.log_start_offset)

    def delete_old_segments(self, now_ms: int, limit_offset: int | None = None) -> int:
        """Retention by time, size and log start: how many segments were taken out.

        Only segments wholly below `limit_offset` (the stable end unless given) go.  Their files follow after the
        new log start is checkpointed: `LogDirectory.checkpoint` renames them.
        """
        return retention.delete_old_segments(self, now_ms, self._limit(limit_offset))

    def expire_producers(self, now_ms: int) -> int:
        """Forget idempotent producers that were silent for too long."""
        return self.producers.expire(now_ms)

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, or below where that lies inside a batch (followers only)."""
        if offset >= self.log_end_offset:
            return
        try:
            truncation.truncate(self, offset)
        except OSError as error:
            raise write_failed(self, error) from error

    def after_cut(self) -> None:
        """The log end went back: so does what was remembered of it."""
        self._caches_end = NO_OFFSET
        self._active = active = self.segments.active
        self.note("truncated", log_end_offset=self.log_end_offset)
        latest = self.epochs.latest_epoch
        self._epoch_is_new = self.leader_epoch >= 0 and (latest is None or self.leader_epoch > latest)
        self.places.forget()
        if self.stable_end >= self.log_end_offset:
            self.stable_end = self.log_end_offset
            self.places.set_stable(active, active.size_bytes)
        self.flush_at_offset = self.flushed_end + self.config.flush_messages_max

    def note(self, name: str, **facts: object) -> None:
        """Changes of role and extent, told when the log fails; batches are not among them."""
        self.story.add(self.host.now_ms(), name, **facts)

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        self.segments.check_invariants()
        assert self._active is self.segments.active
        assert 0 <= self.log_start_offset <= self.log_end_offset
        assert self.flushed_end <= self.log_end_offset
        assert self.stable_end <= self.log_end_offset
        assert self._active.base_offset <= self.log_end_offset
        if self.is_os_policy and self.failure is None:
            assert self.stable_end == self.log_end_offset

    # --- closing --------------------------------------------------------------------------------------------

    def write_caches(self) -> None:
        """Write the active segment's indexes and the producers' snapshot, for a clean shutdown.

        Nothing is written for a log that is empty or as it was opened: a thousand idle logs cost nothing.
        """
        if self.log_end_offset in (self._caches_end, self.segments.first.base_offset):
            return
        for file in self._active.write_indexes():
            file.close()
        write_snapshot(self.disk, self.path, self.log_end_offset, self.producers)

    def close(self) -> None:
        """Close all files.  Nothing is flushed: that is the directory's, which closes all logs together."""
        self.unsynced.close()
        for segment in [*self.segments, *self.removed_segments, *self.truncated_segments]:
            segment.close()
