"""Reads the records that decide how far a copy has got.  See `tail_match`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.client.fetching.fetch_requests import FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import EARLIEST, LATEST, IsolationLevel, OffsetAnswer, try_list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.batch_copy import copyable_batches
from ottla.mirror.offset_translation import Run
from ottla.mirror.tail_match import Digest, TailMatch, match_tail
from ottla.model.identifiers import TopicPartition
from ottla.model.windows import window_start_ms
from ottla.records.record_run import RecordRun, read_runs


class LogEnds(NamedTuple):
    """A partition can be read from `start`, up to `end` (exclusive)."""

    start: int
    end: int


def log_ends(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, LogEnds | ClientError]:
    """Of each partition, or why it is not known now; one without a leader does not hold up the others."""
    wanted = list(partitions)
    if not wanted:
        return {}
    starts = try_list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    ends = try_list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation=isolation)
    return {partition: _ends(starts[partition], ends[partition]) for partition in wanted}


def _ends(start: OffsetAnswer | ClientError, end: OffsetAnswer | ClientError) -> LogEnds | ClientError:
    if isinstance(start, ClientError):
        return start
    return end if isinstance(end, ClientError) else LogEnds(start.offset, end.offset)


def compare_tail(
    source: Cluster,
    target: Cluster,
    partition: TopicPartition,
    source_topic_id: UUID,
    source_range: range,
    target_range: range,
    records_max: int,
    first_offset: int | None = None,
    uncompacted_from: int | None = None,
) -> TailMatch:
    """Which records of the target's range are copies of the source's.  Raises ClientError, CorruptBatch.

    Reads at most `records_max` of the source: as many as the target got offsets for.  What it has of them is no bound:
    compaction and retention take records there, too.  `first_offset`, `uncompacted_from`: see `match_tail`.
    """
    tail_reader = _RecordReader(target, partition, target_range)
    tail = list(tail_reader.digests(with_times=True))
    with_times = not tail_reader.has_own_times
    if not with_times:
        # The target stamps records itself: they are compared without their times.
        tail = list(tail_reader.digests(with_times=False))
    if not tail or not source_range:
        return TailMatch([], [each.offset for each in tail])
    reader = _RecordReader(source, partition, source_range, source_topic_id)
    records = islice(reader.digests(with_times=with_times), records_max)
    return match_tail(tail, records, first_offset, uncompacted_from)


def windows_of_runs(
    source: Cluster, partition: TopicPartition, source_topic_id: UUID, runs: Sequence[Run], window_ms: int
) -> dict[int, int]:
    """By the windows' starts, the source's records in these runs."""
    if not runs:
        return {}
    wanted = range(runs[0].source_first, runs[-1].source_first + runs[-1].length)
    offsets = {offset for run in runs for offset in range(run.source_first, run.source_first + run.length)}
    found: Counter[int] = Counter()
    for offset, time_ms in _RecordReader(source, partition, wanted, source_topic_id).times():
        if offset in offsets:
            found[window_start_ms(time_ms, window_ms)] += 1
    return dict(found)


class _RecordReader:
    """`has_own_times`: a batch was seen whose times its broker made."""

    def __init__(
        self, cluster: Cluster, partition: TopicPartition, offsets: range, topic_id: UUID | None = None
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._offsets = offsets
        self._topic_ids = {} if topic_id is None else {partition.topic: topic_id}
        self.has_own_times = False

    def digests(self, *, with_times: bool) -> Iterator[Digest]:
        for run in self._runs():
            for offset, time_ms, *content in zip(*run, strict=True):
                if offset in self._offsets:
                    yield Digest(offset, hash((time_ms if with_times else 0, *content)))

    def times(self) -> Iterator[tuple[int, int]]:
        """Offsets and times in ms."""
        for run in self._runs():
            yield from zip(run.offsets, run.timestamps_ms, strict=True)

    def _runs(self) -> Iterator[RecordRun]:
        """The first may begin below the range, the last end above it."""
        if not self._offsets:
            return
        with Fetcher(
            self._cluster,
            {self._partition: self._offsets.start},
            {self._partition: self._offsets.stop},
            topic_ids=self._topic_ids,
            limits=FetchLimits(check_crc=True),
            isolation=IsolationLevel.READ_COMMITTED,
        ) as fetcher:
            for fetched in fetcher:
                for header, batch in copyable_batches(fetched):
                    self.has_own_times = self.has_own_times or header.is_log_append_time
                    yield from read_runs(batch, check_crc=False)
