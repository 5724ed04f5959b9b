"""Proves how far copies have got before they continue: after a start, a failure, or an inconsistency."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.client.admin.configs import ConfigResource, ResourceType, describe_configs
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.audit_commits import WINDOW_MS
from ottla.mirror.journal import Counts
from ottla.mirror.options import ACCEPT, APPEND, MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy
from ottla.mirror.tail_match import TailMatch
from ottla.mirror.tail_reading import LogEnds, compare_tail, log_ends, windows_of_runs
from ottla.model.counted import counted
from ottla.model.errors import OttlaError

_POLICY: Final = "cleanup.policy"
# How far to search for copies of another mirror of the same source: first of one at the same place, then of one that is
# some seconds ahead or behind.
_NEAR_OFFSETS: Final = (2_000, 500_000)


class NeedsDecision(OttlaError):
    """Continuing automatically could be wrong: an operator has to decide."""


class ForeignRecords(NeedsDecision):
    hint = "stop the other writer; with foreign records accepted the mirror counts them and continues"


class SourceShrank(NeedsDecision):
    hint = "its broker has lost records (unclean election, lost disk); the copy still has them"


class Prover:
    """`note` is called with messages for an operator."""

    def __init__(self, source: Cluster, target: Cluster, options: MirrorOptions, note: Callable[[str], None]) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._note = note

    def prove(self, copies: Sequence[PartitionCopy]) -> Mapping[PartitionCopy, OttlaError | None]:
        """Of each copy, why it cannot continue; None: it copies again."""
        partitions = [copy.partition for copy in copies]
        here = log_ends(self._source, partitions, IsolationLevel.READ_COMMITTED)
        there = log_ends(self._target, partitions)
        compaction = _Compaction(self._target)
        outcome: dict[PartitionCopy, OttlaError | None] = {}
        for copy in copies:
            try:
                self._prove(copy, _known(here[copy.partition]), _known(there[copy.partition]), compaction)
                outcome[copy] = None
            except OttlaError as error:
                outcome[copy] = error
        return outcome

    def explain(self, copy: PartitionCopy, unknown: range) -> int:
        """The target has offsets between those of the copy: another mirror's records, others, or markers, which are
        neither.  The count of the first.

        Raises ForeignRecords.
        """
        source = range(copy.source_start, copy.source_log_end)
        records, duplicates = set(unknown), 0
        try:
            # Without records of the source to compare them with, all that can be read is foreign.
            records = set(self._compare(copy, range(0), unknown, 0).foreign_offsets)
            if records:
                duplicates = len(self._copies_near(copy, copy.offsets.source_end, source, unknown, records))
        except ClientError as error:
            self._note(f"{copy.source}: what others wrote to {unknown} of the target cannot be read: {error}")
        self._report_duplicates(copy, duplicates)
        foreign = len(records) - duplicates
        copy.add_counts(Counts(duplicate_records=duplicates, foreign_records=foreign))
        self._report_foreign(copy, foreign)
        return duplicates

    def _prove(self, copy: PartitionCopy, here: LogEnds, there: LogEnds, compaction: _Compaction) -> None:
        self._check_target(copy, there)
        self._check_source(copy, here)
        expected = copy.offsets.source_end
        tail = range(max(there.start, copy.offsets.target_end), there.end)
        got = there.end - copy.offsets.target_end
        next_here = range(max(here.start, expected), here.end)
        # An empty tail has no gap: most starts need not read the settings.
        uncompacted_from = None if not tail or compaction.is_possible(copy.partition.topic) else there.start
        match = self._compare(copy, next_here, tail, got, copy.offsets.target_end, uncompacted_from)
        duplicates, foreign = set(match.duplicate_offsets), set(match.foreign_offsets)
        if foreign:
            # Another mirror may be ahead of this one, or lag; or a batch came late to a recreated topic.
            again = self._copies_near(copy, expected, range(here.start, here.end), tail, foreign)
            duplicates, foreign = duplicates | again, foreign - again
        if here.start > expected:
            # What the source has deleted since cannot be compared: it does not count as foreign.
            foreign = set()
        windows = {} if copy.audit is None else self._windows(copy, match)
        counts = Counts(duplicate_records=len(duplicates), foreign_records=len(foreign))
        copy.on_tail_matched(match, there.end, counts=counts, windows=windows)
        lost = copy.on_overtaken(here.start)
        if lost:
            self._note(f"{copy.source}: the source deleted {counted(lost, 'offset')} before they were copied")
        copy.on_source_seen(here.end)
        if match.gap:
            self._note(
                f"{copy.source}: the target lacks records of the source's offsets {match.gap.start} to"
                f" {match.gap.stop - 1}, and has later ones: all are copied again from {match.gap.start} on,"
                f" {counted(len(duplicates), 'record')} twice"
            )
        else:
            self._report_duplicates(copy, len(duplicates))
        self._report_foreign(copy, len(foreign))

    def _copies_near(
        self, copy: PartitionCopy, place: int, source: range, target: range, unknown: set[int]
    ) -> set[int]:
        """Which of these offsets of the target's range have copies of what the source has around this place: another
        mirror of this source is somewhere near."""
        found: set[int] = set()
        for distance in _NEAR_OFFSETS:
            around = range(max(source.start, place - distance), min(source.stop, place + distance))
            match = self._compare(copy, around, target, len(around))
            runs = (range(run.target_first, run.target_end) for run in match.runs)
            found = unknown & {*match.duplicate_offsets, *(offset for run in runs for offset in run)}
            # Where others write, too, it would be sought in vain each time.
            if found == unknown or self._options.foreign_records == ACCEPT:
                break
        return found

    def _report_duplicates(self, copy: PartitionCopy, duplicates: int) -> None:
        if duplicates:
            self._note(
                f"{copy.source}: twice on the target: {counted(duplicates, 'record')}; another mirror writes, too"
            )

    def _check_target(self, copy: PartitionCopy, there: LogEnds) -> None:
        if there.end < copy.offsets.target_end:
            self._note(f"{copy.source}: the target lost its records from offset {there.end} on: they are copied again")
            copy.on_target_shrank(there.end)

    def _check_source(self, copy: PartitionCopy, here: LogEnds) -> None:
        expected = copy.offsets.source_end
        if here.end >= expected:
            return
        problem = f"the source's log ends at {here.end}, and was copied up to {expected}: it has lost records"
        if self._options.recreated_topics != APPEND:
            raise SourceShrank(problem)
        self._note(f"{copy.source}: {problem}; its records from {here.end} on are copied after them")
        copy.on_source_shrank(here.end)

    def _report_foreign(self, copy: PartitionCopy, foreign: int) -> None:
        if not foreign:
            return
        problem = f"another writer wrote {counted(foreign, 'record')} to the copy on the target"
        if self._options.foreign_records != ACCEPT:
            raise ForeignRecords(problem)
        self._note(f"{copy.source}: {problem}")

    def _windows(self, copy: PartitionCopy, match: TailMatch) -> dict[int, int]:
        return windows_of_runs(self._source, copy.partition, copy.source.topic_id, match.runs, WINDOW_MS)

    def _compare(
        self,
        copy: PartitionCopy,
        source: range,
        target: range,
        records_max: int,
        first_offset: int | None = None,
        uncompacted_from: int | None = None,
    ) -> TailMatch:
        if not target:
            return TailMatch([], [])
        return compare_tail(
            self._source,
            self._target,
            copy.partition,
            copy.source.topic_id,
            source,
            target,
            records_max,
            first_offset,
            uncompacted_from,
        )


class _Compaction:
    """Which topics of the target may have lost records to compaction, as their settings are now; read once a topic."""

    def __init__(self, target: Cluster) -> None:
        self._target = target
        self._known: dict[str, bool] = {}

    def is_possible(self, topic: str) -> bool:
        """Raises ClientError.  True where the broker does not name the setting: then the offsets alone decide."""
        if topic not in self._known:
            found = describe_configs(self._target, ConfigResource(ResourceType.TOPIC, topic), [_POLICY])
            policy = found[_POLICY].value if _POLICY in found else None
            self._known[topic] = policy is None or "compact" in policy
        return self._known[topic]


def _known(ends: LogEnds | ClientError) -> LogEnds:
    if isinstance(ends, ClientError):
        raise ends
    return ends
