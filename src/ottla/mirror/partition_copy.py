"""The copy of one partition: records that are read, in flight, and on the target.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.mirror.audit_commits import WINDOW_MS, AuditState, CopyCounts
from ottla.mirror.batch_copy import copied_batch, copyable_batches
from ottla.mirror.journal import CopyProgress, Counts, MirrorJournal, SourcePartition
from ottla.mirror.offset_translation import OffsetTranslation, Run
from ottla.mirror.tail_match import TailMatch
from ottla.model.errors import OttlaError
from ottla.records.batch_times import window_counts


class TargetLostRecords(OttlaError):
    hint = "its broker has lost records (unclean election, lost disk); they are copied again"


class Phase(Enum):
    """UNPROVEN: the target's records after the last progress must be compared first.  STUCK: see `problem`."""

    UNPROVEN = "unproven"
    COPYING = "copying"
    STUCK = "stuck"


@dataclass(slots=True, eq=False)
class Flight:
    """A batch in flight.  `source_end`: after it, and after the offsets that were left out behind it."""

    owner: PartitionCopy
    batch: bytearray
    runs: tuple[Run, ...]
    source_end: int
    counts: Counts
    windows: Mapping[int, int]
    base_offset: int = -1

    def on_stored(self, base_offset: int) -> None:
        self.base_offset = base_offset

    def leave_out_to(self, source_end: int) -> None:
        """The offsets after its batch, up to here, are left out."""
        self.source_end = max(self.source_end, source_end)

    @property
    def is_acknowledged(self) -> bool:
        return self.base_offset >= 0


class PartitionCopy:
    """`offsets` has the acknowledged records without a gap; everything after `offsets.source_end` would be copied
    again.

    `problem`: why it is stuck, or was the last time.  `is_dirty`: there is progress that is not stored.
    `has_gone_back`: the stored progress is too far, and must be replaced before anything else is copied.
    `audit` None: no counts for the audit.
    """

    def __init__(
        self,
        source: SourcePartition,
        target_topic_id: UUID,
        offsets: OffsetTranslation,
        counts: Counts,
        audit: CopyCounts | None = None,
        *,
        is_dirty: bool = False,
    ) -> None:
        self.source = source
        self.partition = source.place
        self.target_topic_id = target_topic_id
        self.offsets = offsets
        self.counts = counts
        self.audit = audit
        self.phase = Phase.UNPROVEN
        self.problem: str | None = None
        self.is_final = False
        self.is_dirty = is_dirty
        self.has_gone_back = False
        self.source_start = 0
        # The source's end when it was last seen, exclusive.
        self.source_log_end = offsets.source_end
        self._flights: deque[Flight] = deque()
        # Whether the marker of a committed transaction is among the next offsets of the target.
        self._has_marker = False

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        return self._flights[-1].source_end if self._flights else self.offsets.source_end

    @property
    def in_flight_count(self) -> int:
        return len(self._flights)

    @property
    def lag_offsets(self) -> int:
        return max(0, self.source_log_end - self.offsets.source_end)

    @property
    def is_audit_full(self) -> bool:
        return self.audit is not None and self.audit.is_full

    def progress(self, now_ms: int) -> CopyProgress:
        audit = None if self.audit is None else self.audit.state
        return CopyProgress(
            self.offsets.source_end, self.offsets.target_end, self.target_topic_id, self.counts, now_ms, audit
        )

    def take(self, fetched: FetchedPartition) -> Iterator[Flight]:
        """The batches of a fetch that must be sent, in order.  Raises CorruptBatch."""
        self.source_start = fetched.log_start_offset
        self.source_log_end = max(fetched.last_stable_offset, fetched.next_offset)
        for header, batch in copyable_batches(fetched):
            copied = copied_batch(header, batch, self.next_offset)
            if copied is None:
                continue
            counts = Counts(copied.records_count, len(copied.batch), 1, int(copied.is_rebuilt))
            windows = {} if self.audit is None else window_counts(batch, WINDOW_MS, first_offset=self.next_offset)
            flight = Flight(self, copied.batch, tuple(copied.runs), header.next_offset, counts, windows)
            self._flights.append(flight)
            yield flight
        # Left out after the last batch: markers, aborted transactions.
        if self._flights:
            self._flights[-1].leave_out_to(fetched.next_offset)
        else:
            self.offsets.skip_to(fetched.next_offset)
            self.is_dirty = True

    def on_acknowledged(self, flight: Flight, base_offset: int) -> list[range]:
        """Target offsets before it that this copy did not get, the markers of its transactions among them; none where
        one marker explains them.  Acknowledgements may come in any order.

        Raises TargetLostRecords.
        """
        flight.on_stored(base_offset)
        unknown: list[range] = []
        while self._flights and self._flights[0].is_acknowledged:
            done = self._flights[0]
            expected = self.offsets.target_end
            if done.base_offset < expected:
                raise TargetLostRecords(f"the target gave offset {done.base_offset} again, it had got up to {expected}")
            if done.base_offset > expected:
                # The marker may be at any place among the records of others, or twice: it is repeated when the answer
                # to its write was lost.
                if done.base_offset > expected + self._has_marker:
                    unknown.append(range(expected, done.base_offset))
                self._has_marker = False
            self._flights.popleft()
            for run in done.runs:
                self.offsets.extend(run._replace(target_first=done.base_offset + run.target_first))
            self.offsets.skip_to(done.source_end)
            self.counts = self.counts.plus(done.counts)
            if self.audit is not None:
                self.audit.add(done.windows)
            self.is_dirty = True
        return unknown

    def fail(self, problem: str, *, is_final: bool) -> None:
        """`is_final`: trying again would not help; an operator has to decide."""
        self._flights.clear()
        self._has_marker = False
        self.phase = Phase.STUCK
        self.problem = problem
        self.is_final = is_final

    def on_tail_matched(
        self, match: TailMatch, target_end: int, *, counts: Counts, windows: Mapping[int, int] | None = None
    ) -> None:
        """Continue after the records that are there.  `counts`: of what is no copy; `windows`: its records by their
        windows, for the audit."""
        if self.audit is not None:
            self.audit.add(windows or {})
        for run in match.runs:
            self.offsets.extend(run)
        self.counts = self.counts.plus(Counts(records=match.records_count)).plus(counts)
        self.offsets.skip_target_to(target_end)
        self.phase = Phase.COPYING
        self.problem = None
        self.is_dirty = True

    def on_marker(self) -> None:
        """The transaction of its records was committed: its marker is on the target before the next of them."""
        self._has_marker = True

    def on_progress_sent(self) -> None:
        """All its progress is in the write to the journal that is sent next."""
        self.is_dirty = False

    def on_progress_in_doubt(self) -> None:
        """A write to the journal has failed or is missing: all its progress is stored again."""
        self.is_dirty = True

    def on_gone_back_stored(self) -> None:
        """The journal has the progress that it went back to."""
        self.has_gone_back = False

    def on_source_seen(self, source_log_end: int) -> None:
        self.source_log_end = source_log_end

    def on_overtaken(self, source_start: int) -> int:
        """The source deleted the next offsets before they were copied; the count of lost offsets."""
        lost = max(0, source_start - self.offsets.source_end)
        self.offsets.skip_to(source_start)
        self.counts = self.counts.plus(Counts(lost_offsets=lost))
        self.is_dirty = True
        return lost

    def on_target_shrank(self, target_end: int) -> None:
        """The target has lost acknowledged records: they are copied again."""
        before = self.offsets.target_end
        self.offsets.truncate(target_end)
        # Records that are found again after a landmark are counted again.
        compared = target_end - self.offsets.target_end
        self.counts = self.counts.plus(Counts(records=-compared, recopied_records=before - target_end))
        self.is_dirty = self.has_gone_back = True

    def on_source_shrank(self, source_end: int) -> None:
        """The source has lost copied records, and continues from there: so does the copy, after the records it has."""
        self.offsets.truncate_source(source_end)
        self.is_dirty = self.has_gone_back = True

    def close_audit(self, now_ms: int) -> None:
        """Close the counts so far: they are stored as a commit with the next progress, and published after that."""
        if self.audit is not None and self.audit.close(self.offsets.source_end, now_ms):
            self.is_dirty = True

    def on_counts_published(self) -> None:
        assert self.audit is not None
        self.audit.on_published()
        self.is_dirty = True

    def add_counts(self, counts: Counts) -> None:
        self.counts = self.counts.plus(counts)
        self.is_dirty = True


def stored_copy(journal: MirrorJournal, source: SourcePartition, *, tells_audit: bool) -> PartitionCopy | None:
    """The copy as the journal knows it; None where it knows nothing."""
    progress, offsets = journal.progress.get(source), journal.offset_translation(source)
    if progress is None or offsets is None:
        return None
    audit = CopyCounts(progress.audit or AuditState(offsets.source_end)) if tells_audit else None
    return PartitionCopy(source, progress.target_topic_id, offsets, progress.counts, audit)
