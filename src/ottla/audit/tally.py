"""One counter's counts by topic and window, and its unpublished messages.  Clocks and identifiers are passed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.audit.count import NO_TOPIC_ID, AuditMessage, Count, CountKey, Report, ReportKey, UnconfirmedMessages
from ottla.model.windows import Window, check_window_ms, window_start_ms

# With more cells a counter continues under a new instance, from nothing: so its memory stays small.
CELLS_MAX: Final = 10_000
# While no message is confirmed, so many are kept; records of further windows are left out then.
_PENDING_PER_CELL: Final = 2


class _Cell:
    __slots__ = ("last_seen_ms", "late_records", "records")

    def __init__(self) -> None:
        self.records = self.late_records = self.last_seen_ms = 0


class Tally:
    """Counts records; `unsent` gives what changed, `confirm` says what of it has arrived.  For one thread at a time.

    Counts are from the counter's begin, not since the last message: one that is lost or comes twice changes nothing.
    Its memory has a bound: while messages are not confirmed, it leaves out further windows, and counts their records.
    """

    def __init__(
        self, tier: str, window_ms: int, new_instance: Callable[[], UUID], *, cells_max: int = CELLS_MAX
    ) -> None:
        self._tier = tier
        self._window_ms = check_window_ms(window_ms)
        self._new_instance = new_instance
        self._cells_max = cells_max
        self._instance = new_instance()
        self._sequence = 0
        self._cells: dict[tuple[str, UUID], dict[int, _Cell]] = {}
        self._cells_count = 0
        self._changed: set[tuple[str, UUID, int]] = set()
        # Reports name the counter as a whole, which outlives the instances of its counts.
        self._reporter = self._instance
        self._unconfirmed = UnconfirmedMessages()
        self._topics: set[tuple[str, UUID]] = set()
        # Records that were not counted, since the counts before them were not confirmed.
        self.uncounted_records = 0
        self._reported_uncounted_records = 0

    def add_topic(self, topic: str, topic_id: UUID = NO_TOPIC_ID) -> None:
        """From now on reports include this topic, even without a record."""
        self._topics.add((topic, topic_id))

    def add(self, topic: str, timestamps_ms: Sequence[int], now_ms: int, *, topic_id: UUID = NO_TOPIC_ID) -> None:
        """Count records with these event times."""
        if not timestamps_ms:
            return
        size_ms = self._window_ms
        first_start_ms = window_start_ms(min(timestamps_ms), size_ms)
        if max(timestamps_ms) < first_start_ms + size_ms:
            self.add_counts(topic, {first_start_ms: len(timestamps_ms)}, now_ms, topic_id=topic_id)
        else:
            starts = Counter(time_ms - time_ms % size_ms for time_ms in timestamps_ms)
            self.add_counts(topic, starts, now_ms, topic_id=topic_id)

    def add_counts(self, topic: str, records: Mapping[int, int], now_ms: int, *, topic_id: UUID = NO_TOPIC_ID) -> None:
        """Count so many records in the windows that start at these times."""
        of_topic = self._cells.get((topic, topic_id))
        if of_topic is None:
            of_topic = self._cells[topic, topic_id] = {}
            self._topics.add((topic, topic_id))
        for start_ms, count in records.items():
            cell = of_topic.get(start_ms)
            if cell is None:
                if self._cells_count >= self._cells_max:
                    if len(self._unconfirmed) >= _PENDING_PER_CELL * self._cells_max:
                        self.uncounted_records += count
                        continue
                    self._begin_instance()
                    of_topic = self._cells.setdefault((topic, topic_id), {})
                cell = of_topic[start_ms] = _Cell()
                self._cells_count += 1
            cell.records += count
            cell.last_seen_ms = max(cell.last_seen_ms, now_ms)
            if now_ms >= start_ms + self._window_ms:
                cell.late_records += count
            self._changed.add((topic, topic_id, start_ms))

    def unsent(self, now_ms: int, *, has_ended: bool = False) -> list[AuditMessage]:
        """What changed, what was not confirmed, and a report for each topic."""
        self._keep_changed()
        self._unconfirmed.keep(
            Report(ReportKey(self._tier, self._reporter, topic, topic_id), self._sequence, now_ms, has_ended)
            for topic, topic_id in sorted(self._topics)
        )
        return list(self._unconfirmed)

    def newly_uncounted(self) -> int:
        """How many records were left out since this was asked last."""
        reported_records, self._reported_uncounted_records = self._reported_uncounted_records, self.uncounted_records
        return self.uncounted_records - reported_records

    def confirm(self, messages: Iterable[AuditMessage]) -> None:
        """These have arrived."""
        self._unconfirmed.confirm(messages)

    def _begin_instance(self) -> None:
        """Published counts stay valid; later records of the same windows are another instance's."""
        self._keep_changed()
        self._cells.clear()
        self._cells_count = 0
        self._instance = self._new_instance()

    def _keep_changed(self) -> None:
        self._sequence += 1
        self._unconfirmed.keep(self._changed_counts())
        self._changed.clear()

    def _changed_counts(self) -> Iterable[Count]:
        for topic, topic_id, start_ms in sorted(self._changed):
            cell = self._cells[topic, topic_id][start_ms]
            window = Window(start_ms, self._window_ms)
            yield Count(
                CountKey(self._tier, self._instance, topic, topic_id, window),
                self._sequence,
                cell.records,
                cell.late_records,
                cell.last_seen_ms,
            )
