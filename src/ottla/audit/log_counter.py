"""Counts the logs that one broker leads, up to their high watermarks, as a client of it, and publishes the counts.

The next offset of each count is committed to the group `ottla-audit`, so its lag shows in every tool.
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from ottla.audit.count import NOT_YET_MS, Report
from ottla.audit.partition_count import BatchPlace, PartitionCount
from ottla.audit.topic import publish
from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import LATEST, OffsetAnswer, log_ranges, try_list_offsets
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, OffsetOutOfRange
from ottla.client.wire.metadata import TopicInfo
from ottla.lost_offsets import LostRange, write_losses
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import HOUR_MS, MIB
from ottla.model.own_names import AUDIT_GROUP, LOST_OFFSETS_TOPIC, OWN_TOPICS
from ottla.observe.events import fields
from ottla.records.batch_times import window_counts
from ottla.records.header import read_header

log = logging.getLogger(__name__)

GROUP: Final = AUDIT_GROUP
_LIMITS: Final = FetchLimits(max_bytes=8 * MIB, partition_max_bytes=1 * MIB)
_TURN_MS: Final = 500
# A group's offsets expire; those of quiet partitions are committed again.
_COMMIT_AGAIN_MS: Final = HOUR_MS


def is_counted(topic: TopicInfo) -> bool:
    """Internal topics have no records of users."""
    return not topic.is_internal and not topic.name.startswith("__") and topic.name not in OWN_TOPICS


class LogCounter:
    """`turn` again and again; `finish` at last.  Counts every topic but Kafka's internal ones and the audit's own."""

    def __init__(self, cluster: Cluster, node_id: int, *, window_ms: int, interval_ms: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._window_ms = window_ms
        self._interval_ms = interval_ms
        self._groups = GroupAdmin(cluster)
        self._counts: dict[TopicPartition, PartitionCount] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_all_ms: float = 0
        self._reported_until_ms: dict[TopicPartition, int] = {}
        # Ends that were not reached yet, and when they were asked for.
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        self._partitions_counts: dict[str, int] = {}
        # The last words of partitions that are gone.
        self._ended: list[Report] = []
        self._fetcher: Fetcher | None = None
        self._due_ms: float = 0

    def turn(self) -> None:
        """Count arriving records for some time; when it is due, publish and commit.  A broker that fails is tried
        again."""
        try:
            if self._cluster.clock.monotonic_ms() >= self._due_ms:
                self._due_ms = self._cluster.clock.monotonic_ms() + self._interval_ms
                self._publish()
                self._follow()
            fetcher = self._open_fetcher()
            for each in fetcher.poll_each(_TURN_MS):
                if isinstance(each, FetchFailure):
                    self._on_failure(fetcher, each)
                else:
                    self._count(each)
        except ClientError as error:
            log.warning("audit.delayed", extra=fields(error=str(error)))
            self._close_fetcher()
            self._due_ms = 0
            self._cluster.retrying.sleep_ms(_TURN_MS)

    def finish(self) -> None:
        """Publish and commit the counts.  Raises ClientError; then another broker counts these records again."""
        self._close_fetcher()
        self._publish()

    def _count(self, fetched: FetchedPartition) -> None:
        count = self._counts.get(fetched.partition)
        if count is None:
            return
        now_ms = self._cluster.clock.now_ms()
        for batch in fetched.batches():
            next_offset = read_header(batch).next_offset
            try:
                found = window_counts(batch, self._window_ms, first_offset=count.place.next_offset)
            except WireError as error:
                self._on_uncounted(count, next_offset, str(error))
                continue
            count.add(found, next_offset, now_ms)
        # Compaction leaves gaps at the end of what was fetched.
        if fetched.next_offset > count.place.next_offset:
            count.add({}, fetched.next_offset, now_ms)

    def _on_failure(self, fetcher: Fetcher, failure: FetchFailure) -> None:
        """It is read on from where the count is then: at once, or if that cannot help from the next `_follow` on."""
        count = self._counts.get(failure.partition)
        if count is not None and isinstance(failure.error, OffsetOutOfRange):
            offsets = log_ranges(self._cluster, [failure.partition])[failure.partition]
            if failure.offset < offsets.start:
                self._on_uncounted(count, offsets.start, "deleted before it was counted")
            elif failure.offset > offsets.stop:
                log.warning("audit.log_shrank", extra=fields(partition=str(failure.partition), end=offsets.stop))
                count.begin_again(offsets.stop)
            fetcher.seek(failure.partition, count.place.next_offset)
        else:
            log.warning("audit.not_read", extra=fields(partition=str(failure.partition), error=str(failure.error)))

    def _on_uncounted(self, count: PartitionCount, end_offset: int, reason: str) -> None:
        """To the topic of lost offsets first: with a ClientError the count stays where it is."""
        first_offset = count.place.next_offset
        lost = LostRange(*_names(count), first_offset, end_offset, reason)
        write_losses(self._cluster, LOST_OFFSETS_TOPIC, GROUP, [lost])
        log.error(
            "audit.range_not_counted",
            extra=fields(
                partition=str(count.partition), first_offset=first_offset, end_offset=end_offset, reason=reason
            ),
        )
        count.skip(end_offset)

    def _publish(self) -> None:
        """Counts first, then the places: below a committed place all counts are published."""
        now_ms = self._cluster.clock.now_ms()
        self._see_ends(now_ms)
        reports = [
            self._report(self._counts[partition], until_ms)
            for partition, until_ms in self._reported_until_ms.items()
            if partition in self._counts
        ]
        unsent_by_count = {count: count.unsent() for count in self._counts.values()}
        messages = [message for unsent in unsent_by_count.values() for message in unsent]
        if not messages and not reports and not self._ended:
            return
        publish(self._cluster, [*messages, *reports, *self._ended])
        self._ended.clear()
        for count, unsent in unsent_by_count.items():
            count.confirm(unsent)
        self._commit()

    def _see_ends(self, now_ms: int) -> None:
        """A partition that is counted up to the end that it had at some time is counted until then."""
        answers = try_list_offsets(self._cluster, dict.fromkeys(self._counts, LATEST))
        for partition, answer in answers.items():
            next_offset = self._counts[partition].place.next_offset
            # A busy one is never at its end of now, but soon at the one of before.
            if partition in self._ends and next_offset >= self._ends[partition][0]:
                self._reported_until_ms[partition] = self._ends.pop(partition)[1]
            if isinstance(answer, OffsetAnswer):
                if next_offset >= answer.offset:
                    self._reported_until_ms[partition] = now_ms
                    self._ends.pop(partition, None)
                else:
                    self._ends.setdefault(partition, (answer.offset, now_ms))

    def _report(self, count: PartitionCount, until_ms: int, *, has_ended: bool = False) -> Report:
        partitions_count = self._partitions_counts.get(count.partition.topic, 1)
        return count.report(until_ms, partitions_count, has_ended=has_ended)

    def _commit(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        is_due = now_ms - self._committed_all_ms >= _COMMIT_AGAIN_MS
        offsets = {
            partition: CommittedOffset(count.place.next_offset, metadata=count.to_metadata())
            for partition, count in self._counts.items()
            if is_due or self._committed.get(partition) != count.place.next_offset
        }
        if offsets:
            self._groups.commit(GROUP, offsets)
            self._committed |= {partition: each.offset for partition, each in offsets.items()}
        if is_due:
            self._committed_all_ms = now_ms

    def _follow(self) -> None:
        """Count what this broker leads now, from the committed places on."""
        led: dict[TopicPartition, UUID] = {}
        known: set[tuple[str, UUID]] = set()
        for topic in self._cluster.refresh(None):
            known.add((topic.name, topic.topic_id))
            if is_counted(topic) and not topic.error_code:
                self._partitions_counts[topic.name] = len(topic.partitions)
                for index, info in topic.partitions.items():
                    if info.leader_id == self._node_id:
                        led[TopicPartition(topic.name, index)] = topic.topic_id
        for partition, count in list(self._counts.items()):
            if led.get(partition) != count.topic_id:
                self._forget(partition, is_gone=(partition.topic, count.topic_id) not in known)
        self._begin({each: led[each] for each in led if each not in self._counts})
        if self._fetcher is not None and self._fetcher.positions.keys() != self._counts.keys():
            self._close_fetcher()

    def _begin(self, partitions: dict[TopicPartition, UUID]) -> None:
        if not partitions:
            return
        committed = self._groups.committed(GROUP, partitions)
        begun: list[PartitionCount] = []
        for partition, topic_id in partitions.items():
            count = self._from_commit(partition, topic_id, committed.get(partition))
            if count is not None:
                begun.append(count)
        new = [each for each in partitions if each not in {count.partition for count in begun}]
        for partition, offsets in log_ranges(self._cluster, new).items() if new else ():
            start = offsets.start
            place = BatchPlace(start, start)
            begun.append(PartitionCount(partition, partitions[partition], self._window_ms, place))
        if new:
            # From now on waits for the topic include this partition, however long its count takes.
            counts = {count.partition: count for count in begun}
            publish(self._cluster, [self._report(counts[each], NOT_YET_MS) for each in new if each in counts])
        self._counts |= {count.partition: count for count in begun}
        # Before any count is published, so that all counters start from the same place.
        self._commit()

    def _from_commit(
        self, partition: TopicPartition, topic_id: UUID, committed: CommittedOffset | None
    ) -> PartitionCount | None:
        if committed is None:
            return None
        try:
            return PartitionCount.from_commit(
                partition, topic_id, self._window_ms, committed.offset, committed.metadata
            )
        except WireError as error:
            # A user has set the group's offsets: the count continues from there.
            log.warning("audit.place_not_read", extra=fields(error=str(error)))
            place = BatchPlace(committed.offset, committed.offset)
            return PartitionCount(partition, topic_id, self._window_ms, place)

    def _forget(self, partition: TopicPartition, *, is_gone: bool) -> None:
        """Another broker counts it from the committed place on; none does when the topic was deleted."""
        count = self._counts.pop(partition)
        self._committed.pop(partition, None)
        until_ms = self._reported_until_ms.pop(partition, NOT_YET_MS)
        self._ends.pop(partition, None)
        if is_gone:
            self._ended.append(self._report(count, until_ms, has_ended=True))

    def _open_fetcher(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = Fetcher(
                self._cluster,
                {partition: count.place.next_offset for partition, count in self._counts.items()},
                topic_ids={partition.topic: count.topic_id for partition, count in self._counts.items()},
                limits=_LIMITS,
            )
        return self._fetcher

    def _close_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None


def _names(count: PartitionCount) -> tuple[str, UUID, int]:
    return count.partition.topic, count.topic_id, count.partition.partition
