"""The driver's queries to a cluster: the partitions of a subscription, and the offsets of a user's specification."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from uuid import UUID

from ottla.client.admin.replicas import describe_replicas
from ottla.client.fetching.offsets import IsolationLevel, list_offsets
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.client.wire.metadata import TopicInfo
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.waiting import Waiting
from ottla.lost_offsets import LostRange, write_losses
from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss, ReadTimedOut, SparkOptionError
from ottla.spark.options.connection import Connection
from ottla.spark.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    Offsets,
    OffsetSpec,
)
from ottla.spark.options.read_options import Assigned, OnLoss, ReadOptions, is_subscribed, subscribed_names
from ottla.spark.source.gone_topics import is_gone, is_latest_leader, leaders_log


def open_cluster(connection: Connection, memory: ReusedMemory | None = None) -> Cluster:
    """Reports on standard error what it waits for: a driver shows it, and an executor's log keeps it."""
    waiting = Waiting(_tell)
    return Cluster(
        connection.bootstrap, connection.client_options, dial=waiting.dial, memory=memory, on_wait=waiting.on_wait
    )


def _tell(line: str) -> None:
    sys.stderr.write(f"ottla: {line}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a subscription means on the cluster now; ids are all zeros where the cluster has none."""

    partitions: list[TopicPartition]
    topic_ids: Mapping[str, UUID]
    cluster_id: str


class ClusterView:
    """One subscription on one cluster.  Not to be pickled: each process opens its own."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = open_cluster(options.connection)

    def __enter__(self) -> ClusterView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    @property
    def cluster_id(self) -> str:
        """Empty before the first request, and from a broker that has none."""
        return self._cluster.info.cluster_id or ""

    def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        """All current partitions of the subscription; see `subscribed`."""
        return self.subscribed(missing_ok=missing_ok).partitions

    def subscribed(self, *, missing_ok: bool = False) -> Subscribed:
        """All current partitions of the subscription, with their topics' ids.

        Raises `UnknownTopic` for a named one that does not exist; with `missing_ok` it is left out.
        """
        topics = self._topics(missing_ok)
        found = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        subscription = self._options.subscription
        if isinstance(subscription, Assigned):
            missing = set(subscription.partitions).difference(found)
            if missing and not missing_ok:
                raise UnknownTopic(
                    f"the option 'assign' names {', '.join(map(str, sorted(missing)))}: which do not exist"
                )
            found = [partition for partition in found if partition in subscription.partitions]
        return Subscribed(sorted(found), {topic.name: topic.topic_id for topic in topics}, self.cluster_id)

    def _topics(self, missing_ok: bool) -> list[TopicInfo]:
        """One request for all topics; another, with some patience, for each that seems to be missing."""
        names = subscribed_names(self._options.subscription)
        if names is None:
            return [
                topic
                for topic in self._cluster.refresh(None)
                if is_subscribed(self._options.subscription, TopicPartition(topic.name, 0))
                and not topic.is_internal
                and not topic.error_code
            ]
        found: list[TopicInfo] = []
        for topic in self._cluster.refresh(names):
            try:
                found.append(topic if not topic.error_code else self._cluster.topic(topic.name))
            except UnknownTopic:
                if not missing_ok:
                    raise
        return found

    def topic_ids(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, UUID]:
        """All zeros where the cluster has no topic ids (Apache Kafka before 2.8).

        Raises `UnknownTopic` for a topic that does not exist; with `missing_ok` it is left out.
        """
        ids = {}
        for name in topics:
            try:
                ids[name] = self._cluster.topic(name).topic_id
            except UnknownTopic:
                if not missing_ok:
                    raise
        return ids

    def check_gone(self, places: Collection[TopicPartition], topic_id: UUID) -> None:
        """Raises `ReadTimedOut` unless every broker says that these partitions of one topic are gone."""
        named = ", ".join(map(str, sorted(places)))
        try:
            is_sure = is_gone(self._cluster, places, topic_id, self._cluster.retrying.deadline())
        except ClientError as error:
            raise ReadTimedOut(f"{named} seems to be deleted, but not every broker could be asked: {error}") from error
        if not is_sure:
            raise ReadTimedOut(f"{named} is deleted to one broker, and there to another")

    def check_cut(self, place: TopicPartition, read: int) -> None:
        """Raises `ReadTimedOut` unless the log ends before the offset `read`, and no broker knows of a later leader
        than the one that says so."""
        try:
            log, leader_epoch = leaders_log(self._cluster, place)
            is_sure = log.stop < read and is_latest_leader(
                self._cluster, place, leader_epoch, self._cluster.retrying.deadline()
            )
        except ClientError as error:
            raise ReadTimedOut(
                f"{place} was read up to offset {read} and seems to end before it, but not all brokers could be asked: "
                f"{error}"
            ) from error
        if not is_sure:
            raise ReadTimedOut(f"{place} ends before offset {read} to one broker, which another one leads by now")

    def offsets(self, spec: OffsetSpec, partitions: Iterable[TopicPartition], *, is_start: bool) -> Offsets:
        """The specification as offsets.  Raises `SparkOptionError` when it names other partitions, or starts after the
        last record."""
        wanted = list(partitions)
        if isinstance(spec, AtOffset):
            return self._asked(dict.fromkeys(wanted, spec.offset))
        if isinstance(spec, AtOffsets):
            _check_same(spec.option, spec.offsets, wanted)
            asked = {place: offset for place, offset in spec.offsets.items() if offset < 0}
            return {**spec.offsets, **self._asked(asked)}
        if isinstance(spec, AtGroup):
            return self._at_group(spec, wanted)
        if isinstance(spec, AtTimestamp):
            times: Mapping[TopicPartition, int] = dict.fromkeys(wanted, spec.timestamp_ms)
        else:
            _check_same(spec.option, spec.timestamps_ms, wanted)
            times = spec.timestamps_ms
        return self._at_times(spec.option, times, must_exist=is_start and not spec.is_latest_when_late)

    def _at_times(self, option: str, times_ms: Mapping[TopicPartition, int], *, must_exist: bool) -> Offsets:
        offsets = self._asked(times_ms)
        late = sorted(place for place, offset in offsets.items() if offset < 0)
        if late and must_exist:
            raise SparkOptionError(
                f"the option {option!r}: {late[0]} has no record at or after {times_ms[late[0]]}",
                hint="start earlier, or set startingOffsetsByTimestampStrategy to latest",
            )
        return {**offsets, **self._asked(dict.fromkeys(late, LATEST))}

    def _at_group(self, spec: AtGroup, wanted: list[TopicPartition]) -> Offsets:
        committed = GroupAdmin(self._cluster).committed(spec.group_id, wanted)
        offsets = {place: committed[place].offset for place in wanted if place in committed}
        return offsets | self.earliest(place for place in wanted if place not in offsets)

    def offset_bytes(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """The stored bytes of each log for one of its offsets, on average; 0 for an empty one."""
        wanted = list(places)
        starts, ends = self.earliest(wanted), self.latest(wanted)
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            by_leader.setdefault(self._cluster.leader(place).leader_id, []).append(place)
        averages: dict[TopicPartition, float] = {}
        for node_id, led in by_leader.items():
            stored = describe_replicas(self._cluster, node_id, partitions=led)
            averages |= {
                place: stored[place].size_bytes / max(1, ends[place] - starts[place])
                for place in led
                if place in stored
            }
        return averages

    def lose(self, losses: Sequence[LostRange]) -> None:
        """Records are proven to be lost: raises `DataLoss`, or writes them down, as the options say."""
        if losses and self._options.on_loss is OnLoss.FAIL:
            raise DataLoss("; ".join(dict.fromkeys(map(str, losses))))
        if losses and self._options.on_loss is OnLoss.RECORD:
            write_losses(self._cluster, self._options.lost_offsets_topic, self._options.reader, losses)

    def _asked(self, questions: Mapping[TopicPartition, int]) -> Offsets:
        if not questions:
            return {}
        answers = list_offsets(self._cluster, questions, isolation=self._isolation(questions))
        return {place: answer.offset for place, answer in answers.items()}

    def _isolation(self, questions: Mapping[TopicPartition, int]) -> IsolationLevel:
        # Only "latest" depends on the isolation level; older brokers do not know the field.
        return self._options.isolation if LATEST in questions.values() else IsolationLevel.READ_UNCOMMITTED

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._asked(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Up to where they can be read: before an open transaction where only committed records are read."""
        return self._asked(dict.fromkeys(partitions, LATEST))

    def log_ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where the logs end, independent of the options."""
        answers = list_offsets(self._cluster, dict.fromkeys(partitions, LATEST))
        return {place: answer.offset for place, answer in answers.items()}

    def checked(self, option: str, offsets: Offsets) -> Offsets:
        """Offsets given by the user, checked against the logs.

        Raises `DataLoss` for one outside of its log, unless the options say to continue: then it is moved to the
        nearest end.
        """
        starts, ends = self.earliest(offsets), self.log_ends(offsets)
        losses = []
        for place, offset in sorted(offsets.items()):
            if starts[place] <= offset <= ends[place]:
                continue
            has = f"which has {starts[place]} to {ends[place]} (exclusive)"
            named = f"the option {option!r} names offset {offset} of {place}, {has}"
            if self._options.on_loss is OnLoss.FAIL:
                raise DataLoss(named)
            moved = min(max(offset, starts[place]), ends[place])
            topic_id = self._cluster.topic(place.topic).topic_id
            first, end = min(offset, moved), max(offset, moved)
            losses.append(LostRange(place.topic, topic_id, place.partition, first, end, named))
        self.lose(losses)
        return {place: min(max(offset, starts[place]), ends[place]) for place, offset in offsets.items()}


def _check_same(option: str, named: Mapping[TopicPartition, int], wanted: list[TopicPartition]) -> None:
    missing, unknown = set(wanted).difference(named), set(named).difference(wanted)
    if missing:
        raise SparkOptionError(
            f"the option {option!r} does not name {', '.join(map(str, sorted(missing)))}",
            hint="name every partition that is read; -2 is its earliest offset",
        )
    if unknown:
        raise SparkOptionError(
            f"the option {option!r} names {', '.join(map(str, sorted(unknown)))}, which is not read",
            hint="leave it out",
        )
