"""A share of a mirror's work: some partitions up to some offsets, by a process that another one coordinates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.mirror.audit_publishing import AuditPublisher
from ottla.mirror.copier import Copier
from ottla.mirror.journal import MirrorJournal, SourcePartition, owner_entry
from ottla.mirror.options import FAILURES_MAX, MirrorOptions
from ottla.mirror.partition_copy import stored_copy
from ottla.mirror.progress_topic import JournalReader, JournalWriter, read_journal
from ottla.mirror.report import PartitionStatus, statuses
from ottla.model.errors import OttlaError
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC

LOOK_EVERY_MS: Final = 1_000


class RangeTaken(OttlaError):
    hint = "another task or another mirror copies it now, and continues where this one stopped"


class RangeFence:
    """Claims partitions in the journal; `is_held` until another process claims one of them.

    Spark may run a task again while the first one's executor is only disconnected, and a driver that was replaced may
    still have tasks.  Such a task copies on until it next reads the journal; its successor finds those records on the
    target and counts them.
    """

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
        """Checked in the journal once a second; while it cannot be read, the last result."""
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


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Copy the partition up to `end`, exclusive; everything below `begin` is copied already.  Its progress is
    stored."""

    source: SourcePartition
    begin: int
    end: int


class ProgressMissing(OttlaError):
    hint = f"the topic {MIRROR_PROGRESS_TOPIC} was deleted or changed: run the mirror again"


def copy_ranges(
    source: str | Sequence[str],
    target: str | Sequence[str],
    works: Sequence[CopyRange],
    options: MirrorOptions,
    clients: tuple[ClientOptions, ClientOptions],
    note: Callable[[str], None] = lambda line: None,
) -> list[PartitionStatus]:
    """How far each partition got.  To do it again, after a failure in the middle too, copies nothing twice.

    Raises ClientError, JournalNotWritten; RangeTaken where another process has started to copy one of them.
    """
    with Cluster(source, clients[0]) as here, Cluster(target, clients[1]) as there:
        fence = RangeFence(there, JournalReader(there), [work.source for work in works])
        with JournalWriter(there, MirrorJournal()) as claiming:
            fence.take(claiming)
        # After the claim: reads everything that the owner before has stored, but for its writes until it sees the
        # claim.
        journal = read_journal(there)
        copies = []
        for work in works:
            copy = stored_copy(journal, work.source, tells_audit=options.tells_audit)
            if copy is None:
                raise ProgressMissing(f"nothing is known of the copy of {work.source}")
            copies.append(copy)
        with (
            JournalWriter(there, journal) as writer,
            Copier(
                here, there, writer, options, may_write=fence.is_held, note=note, failures_max=FAILURES_MAX
            ) as copier,
        ):
            copier.assign(copies, {copy.partition: work.end for copy, work in zip(copies, works, strict=True)})
            publisher = AuditPublisher(here, there, note)

            def publish() -> None:
                copier.close_audit()
                copier.finish_progress()
                publisher.publish(copies, writer.journal)

            while not copier.is_finished:
                if not fence.is_held():
                    raise RangeTaken(f"{', '.join(map(str, (work.source for work in works)))} is copied by another")
                copier.turn()
                if copier.is_audit_full:
                    publish()
            copier.drain()
            if options.tells_audit:
                for _ in range(2):  # also counts that waited for an unpublished commit
                    publish()
                copier.finish_progress()
            return statuses(copies)
