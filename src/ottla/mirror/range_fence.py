"""One process at a time copies a range: who begins says so in the journal, and who did before reads it there and stops.

Spark may run a task again while the executor of the first one is only cut off, and a driver that has lost its place may
still have tasks.  What such a one copies until it looks is found on the target by its successor, and is counted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import uuid4

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.journal import SourcePartition, owner_entry
from ottla.mirror.progress_topic import JournalReader, JournalWriter
from ottla.model.errors import OttlaError

LOOK_EVERY_MS: Final = 1_000


class RangeTaken(OttlaError):
    hint = "another task or another mirror copies it now, and goes on where this one was"


class RangeFence:
    """Takes the partitions; `is_held` until another one does."""

    def __init__(self, target: Cluster, reader: JournalReader, partitions: Collection[SourcePartition]) -> None:
        self._clock = target.clock
        self._reader = reader
        self._owner = str(uuid4())
        self._partitions = partitions
        self._looked_ms = self._clock.monotonic_ms()
        self._is_held = True

    def take(self, writer: JournalWriter) -> None:
        """Raises JournalNotWritten."""
        writer.send([owner_entry(each, self._owner) for each in self._partitions])
        writer.finish()

    def is_held(self) -> bool:
        """By a look once a second; while the journal cannot be read, by the last one."""
        now_ms = self._clock.monotonic_ms()
        if self._is_held and now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            try:
                self._reader.read()
            except ClientError:
                return self._is_held
            owners = self._reader.journal.owners
            self._is_held = all(owners.get(each, self._owner) == self._owner for each in self._partitions)
        return self._is_held
