"""A replica's log in memory: records, leader epochs, and a suffix that a power cut loses."""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

Value = TypeVar("Value")


class SimulatedLog(Generic[Value]):
    """Satisfies `ReplicaLog`.  `epochs` has (epoch, offset of its first record), both rising strictly."""

    __slots__ = (
        "appending_epoch",
        "epochs",
        "flushed_end",
        "is_stable_at_once",
        "log_start_offset",
        "records",
        "stable_end",
        "truncations_count",
    )

    def __init__(self, *, is_stable_at_once: bool = False) -> None:
        self.records: list[Value] = []
        self.epochs: list[tuple[int, int]] = []
        self.log_start_offset = 0
        self.stable_end = 0
        self.flushed_end = 0
        # A flush that started before a truncation proves nothing afterwards.
        self.truncations_count = 0
        self.appending_epoch = -1
        # Flush policy `os`: appended records are stable, and a power cut loses them all the same.
        self.is_stable_at_once = is_stable_at_once

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def record(self, offset: int) -> Value:
        return self.records[offset - self.log_start_offset]

    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def epoch_of(self, offset: int) -> int:
        above = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[above - 1][0] if above else -1

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Kafka's rules, as in the storage's log."""
        entries = self.epochs
        if self.appending_epoch > self.last_epoch():
            entries = [*entries, (self.appending_epoch, self.log_end_offset)]
        if not entries or epoch < 0 or epoch > entries[-1][0]:
            return -1, -1
        above = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if above == len(entries):
            return entries[-1][0], self.log_end_offset
        return (entries[above - 1][0] if above else epoch), entries[above][1]

    def start_epoch(self, epoch: int) -> None:
        assert epoch >= self.appending_epoch, "a leader epoch never goes back"
        self.appending_epoch = epoch

    def append(self, value: Value) -> int:
        """Append under the epoch that was started last: the record's offset."""
        return self.append_record(self.appending_epoch, value)

    def append_record(self, epoch: int, value: Value) -> int:
        """Append a record of any epoch, as a follower does."""
        offset = self.log_end_offset
        last_epoch = self.last_epoch()
        assert epoch >= last_epoch, "the epochs of a log never decrease"
        if epoch > last_epoch:
            self.epochs.append((epoch, offset))
        if epoch > self.appending_epoch:
            self.appending_epoch = epoch
        self.records.append(value)
        if self.is_stable_at_once:
            self.stable_end = offset + 1
        return offset

    def flush(self) -> None:
        self.flush_to(self.log_end_offset)

    def flush_to(self, end_offset: int) -> None:
        """A flush that started when the log ended at `end_offset` has ended."""
        self.flushed_end = max(self.flushed_end, min(end_offset, self.log_end_offset))
        self.stable_end = max(self.stable_end, self.flushed_end)

    def reopen(self) -> None:
        """Another process opens the rest of the log, and flushes it."""
        self.truncations_count += 1
        self.appending_epoch = self.last_epoch()
        self.flush()

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        del self.records[max(0, offset - self.log_start_offset) :]
        self.log_start_offset = min(self.log_start_offset, offset)
        self.stable_end = min(self.stable_end, offset)
        self.flushed_end = min(self.flushed_end, offset)
        self.truncations_count += 1
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()

    def reset_to(self, offset: int) -> None:
        """Drop everything; the log is empty and starts at `offset`."""
        self.records.clear()
        self.epochs.clear()
        self.log_start_offset = self.stable_end = self.flushed_end = offset
        self.truncations_count += 1

    def delete_records_before(self, offset: int) -> None:
        count = offset - self.log_start_offset
        if count <= 0:
            return
        assert count <= len(self.records)
        epoch = self.epoch_of(offset) if offset < self.log_end_offset else None
        del self.records[:count]
        self.log_start_offset = offset
        kept = [entry for entry in self.epochs if entry[1] > offset]
        self.epochs = kept if epoch is None else [(epoch, offset), *kept]

    def check_invariants(self) -> None:
        assert self.flushed_end <= self.stable_end <= self.log_end_offset
        assert self.log_start_offset <= self.stable_end
        for former, latter in zip(self.epochs, self.epochs[1:], strict=False):
            assert former[0] < latter[0]
            assert former[1] < latter[1]
        assert all(self.log_start_offset <= start < self.log_end_offset for _, start in self.epochs)
