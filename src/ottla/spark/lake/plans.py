"""The plan of a load: which offsets the table does not have yet, by the table's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.errors import LakeError
from ottla.spark.lake.lake_table import LakeTable
from ottla.spark.options.offset_spec import AtTimestamp, Offsets
from ottla.spark.options.read_options import ReadOptions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import ROWS_PER_TASK_MIN, OffsetRange, limit_offsets, ranges_between

KEPT_BY_TOPIC_ID: Final = -1


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """The application ids of one cluster's partitions.  `topic_ids` holds all zeros where the cluster has none.

    A Delta table keeps one number for each application id.  A load keeps the next offset, under an id that contains the
    topic's id: a topic that was deleted and recreated is another topic, and is loaded from its beginning.  Earlier
    versions kept it under the topic's name.  The first load that knows the topic's id continues from there and sets the
    number under the name to `KEPT_BY_TOPIC_ID`, so that no later topic of that name continues from it.
    """

    cluster_id: str
    topic_ids: Mapping[str, UUID]

    def by_name(self, place: TopicPartition) -> str:
        return f"ottla/{self.cluster_id}/{place.topic}/{place.partition}"

    def by_id(self, place: TopicPartition) -> str | None:
        """None where the cluster has no topic ids (Apache Kafka before 2.8).  No topic's name contains a colon."""
        topic_id = self.topic_ids[place.topic]
        if topic_id == ZERO_UUID:
            return None
        return f"ottla/{self.cluster_id}/{place.topic}:{uuid_to_text(topic_id)}/{place.partition}"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The table's progress in the partitions that a load reads.

    `next_offsets`: where to continue.  `found_by_name`: those of them whose progress is under the topic's name.
    `recreated_topics`: the table has records of an earlier topic of this name, and none of the current one.
    `numbers`: what the table had for each application id that was asked for.
    """

    next_offsets: Offsets
    found_by_name: frozenset[TopicPartition]
    recreated_topics: frozenset[str]
    numbers: Mapping[str, int | None]

    @property
    def known_topics(self) -> frozenset[str]:
        """Of whose name the table has a number: their partitions that have none came later, and are loaded whole."""
        return self.recreated_topics | {place.topic for place in self.next_offsets}


def progress_of(
    places: Iterable[TopicPartition], keys: TopicKeys, version_of: Callable[[str], int | None]
) -> TableProgress:
    """`version_of` is the table's number for an application id, None where it has none.

    Raises `LakeError` when the table knows a topic by its id and the cluster gives none.
    """
    next_offsets: dict[TopicPartition, int] = {}
    found_by_name: set[TopicPartition] = set()
    known_topics: set[str] = set()
    earlier_topics: set[str] = set()
    numbers: dict[str, int | None] = {}

    def number_of(app_id: str) -> int | None:
        numbers[app_id] = version_of(app_id)
        return numbers[app_id]

    for place in places:
        id_key = keys.by_id(place)
        by_id = None if id_key is None else number_of(id_key)
        by_name = number_of(keys.by_name(place))
        if by_id is not None:
            next_offsets[place] = by_id
            known_topics.add(place.topic)
        elif by_name == KEPT_BY_TOPIC_ID:
            if id_key is None:
                raise LakeError(
                    f"the table knows the topic {place.topic} by its id, and the cluster gives no topic ids",
                    hint="load from the cluster as it was before, or into a new table",
                )
            earlier_topics.add(place.topic)
        elif by_name is not None:
            next_offsets[place] = by_name
            known_topics.add(place.topic)
            found_by_name.add(place)
    return TableProgress(next_offsets, frozenset(found_by_name), frozenset(earlier_topics - known_topics), numbers)


def versions_to_commit(progress: TableProgress, end: Offsets, keys: TopicKeys) -> dict[str, int]:
    """The number for each application id that a load up to `end` (exclusive) changes.

    Every partition has a number from the first load that saw it, also where nothing was loaded: what the log deletes
    from then on is missed, and `start` does not count for it again.
    """
    versions: dict[str, int] = {}
    for place, offset in end.items():
        id_key, name_key = keys.by_id(place), keys.by_name(place)
        # Also backwards: `failOnDataLoss=false` continues at the end of a log that lost records.
        is_moved = offset != progress.next_offsets.get(place)
        if id_key is None:
            if is_moved:
                versions[name_key] = offset
        elif is_moved or place in progress.found_by_name:
            versions |= {id_key: offset, name_key: KEPT_BY_TOPIC_ID}
    return versions


# The driver has all files of a commit in memory, with some 5 KiB each while it commits them.
FILES_PER_COMMIT: Final = 20_000


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """`bytes_max`: of the records, in memory.  `files_max`: many hours, or other values that partition, are many."""

    rows_max: int
    bytes_max: int
    files_max: int

    def offsets_max(self, seen: Commit | None, first_offsets: int) -> int:
        """Of the commit after this one, by what its records were; of the first one at most `first_offsets`."""
        if seen is None:
            # Each record may be of another hour.
            return max(1, min(self.rows_max, first_offsets, self.files_max))
        by_bytes = seen.rows_count * self.bytes_max // max(1, seen.records_bytes)
        # More rows never come in more files than in proportion.
        by_files = seen.rows_count * self.files_max // max(1, seen.files_count)
        return max(1, min(self.rows_max, by_bytes, by_files))


@dataclass(frozen=True, slots=True)
class Commit:
    """The size of a commit; `rows_count` is at least 1."""

    rows_count: int
    records_bytes: int
    files_count: int


# Where the partitions of a topic begin that the table does not know: their earliest or latest record, or the first one
# at or after a time in milliseconds since 1970.
Start: TypeAlias = str | int
EARLIEST_START: Final = "earliest"
LATEST_START: Final = "latest"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Offsets `[first, end)` of each partition, and what the table knew of them when it was planned."""

    keys: TopicKeys
    progress: TableProgress
    first: Offsets
    end: Offsets

    @property
    def is_empty(self) -> bool:
        return not self.numbers

    @property
    def offsets_count(self) -> int:
        return sum(self.end[place] - self.first[place] for place in self.end)

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        return self.keys.topic_ids

    @property
    def numbers(self) -> dict[str, int]:
        """What the table is to know after this load, by application id."""
        return versions_to_commit(self.progress, self.end, self.keys)

    @property
    def expected(self) -> dict[str, int | None]:
        """The table's numbers that this load replaces, as they were when it was planned."""
        return {app_id: self.progress.numbers[app_id] for app_id in self.numbers}

    @property
    def ranges(self) -> list[OffsetRange]:
        return ranges_between(self.first, self.end, self.topic_ids)

    def at_most(self, offsets_max: int) -> LoadPlan:
        """The first part of this load, with every partition in proportion to its backlog."""
        end = limit_offsets(self.first, self.end, offsets_max)
        return LoadPlan(self.keys, self.progress, self.first, end)

    def rest(self, part: LoadPlan) -> LoadPlan:
        """What is left after this first part was committed.

        It is planned on what this load has committed itself, never on what the table has by then: another load that
        has gone on from there would be loaded again.
        """
        known = {**self.progress.numbers, **part.numbers}
        return LoadPlan(self.keys, progress_of(self.end, self.keys, known.get), part.end, self.end)


def plan_load(table: LakeTable, options: ReadOptions, start: Start = EARLIEST_START) -> LoadPlan:
    """Everything up to the end of the logs as they are now."""
    with ClusterView(options) as view:
        places = view.partitions()
        # Ids before offsets, and the tasks read by id: in between no topic was recreated.
        keys = TopicKeys(view.cluster_id, view.topic_ids({place.topic for place in places}))
        progress = progress_of(places, keys, table.number_of)
        end = view.latest(places)
        loaded = dict(progress.next_offsets)
        if not options.fails_on_data_loss:
            log_ends = view.log_ends(places)
            # A log that is shorter than its progress by name is taken for another topic's.
            loaded = {
                place: offset
                for place, offset in loaded.items()
                if offset <= log_ends[place] or place not in progress.found_by_name
            }
        known_topics = progress.known_topics
        new = [place for place in places if place.topic not in known_topics]
        # Added since, or of a topic that was recreated: all of it belongs to the table, independent of `start`.
        added = {place: 0 for place in places if place.topic in known_topics}
        # Records after the last load may have been deleted: such a gap is reported.
        first = view.checked("startingOffsets", {**_begins(view, new, end, start), **added, **loaded})
        # Before an open transaction less can be read than was, where all records were read until now.
        end = {place: max(limit, first[place]) for place, limit in end.items()}
        return LoadPlan(keys, progress, first, end)


def plan_backfill(table: LakeTable, options: ReadOptions) -> list[OffsetRange]:
    """What the logs still have of the offsets up to which the table has loaded them."""
    with ClusterView(options) as view:
        places = view.partitions()
        keys = TopicKeys(view.cluster_id, view.topic_ids({place.topic for place in places}))
        loaded = progress_of(places, keys, table.number_of).next_offsets
        first, latest = view.earliest(loaded), view.latest(loaded)
        end = {place: min(offset, latest[place]) for place, offset in loaded.items()}
    return ranges_between({place: min(offset, end[place]) for place, offset in first.items()}, end, keys.topic_ids)


def _begins(view: ClusterView, places: Sequence[TopicPartition], end: Offsets, start: Start) -> Offsets:
    if start == EARLIEST_START:
        return view.earliest(places)
    if start == LATEST_START:
        return {place: end[place] for place in places}
    if not isinstance(start, int) or start < 0:
        raise LakeError(f"start is {start!r}", hint="use 'earliest', 'latest' or milliseconds since 1970")
    if not places:
        return {}
    # A partition without a later record begins at its end.
    found = view.offsets(AtTimestamp("start", start), places, is_start=False)
    return {place: min(offset, end[place]) for place, offset in found.items()}


def share_out(ranges: Sequence[OffsetRange], tasks_max: int) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task: alike in offsets, of few partitions each, and no more tasks than are worth their start.

    A task writes a file for each partition of the table, so fewer tasks make larger files.
    """
    total = sum(part.offsets_count for part in ranges)
    tasks_count = max(1, min(tasks_max, total // ROWS_PER_TASK_MIN))
    tasks: list[list[OffsetRange]] = [[] for _ in range(tasks_count)]
    before = 0
    for part in ranges:
        offset = part.first_offset
        while offset < part.end_offset:
            index = before * tasks_count // total
            # The first number of offsets before the next task's share.
            limit = -(-(index + 1) * total // tasks_count)
            end = min(part.end_offset, offset + limit - before)
            tasks[index].append(OffsetRange(part.topic, part.partition, offset, end, part.topic_id))
            before += end - offset
            offset = end
    return [tuple(task) for task in tasks if task]
