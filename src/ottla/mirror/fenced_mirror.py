"""A mirror while it holds the fence: plans, topic settings, copies, and translated group offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Final
from uuid import UUID, uuid4

from ottla.client.fetching.offsets import EARLIEST, LATEST, IsolationLevel, OffsetAnswer, try_list_offsets
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.mirror.audit_commits import AuditState, CopyCounts
from ottla.mirror.audit_publishing import AuditPublisher
from ottla.mirror.copier import Copier
from ottla.mirror.copy_ranges import CopyRange
from ottla.mirror.copy_transactions import CopyTransactions, has_transactions
from ottla.mirror.group_copy import GroupCopy
from ottla.mirror.journal import (
    CopyClaim,
    Counts,
    Entry,
    SourcePartition,
    claim_entry,
    owner_entry,
    progress_entries,
    withdrawal_entry,
)
from ottla.mirror.mirrored_cluster import MirroredCluster, is_one_of, is_selected
from ottla.mirror.offset_translation import OffsetTranslation
from ottla.mirror.options import LATEST as FROM_LATEST
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy, stored_copy
from ottla.mirror.plan import (
    RECLAIMED,
    ClusterTopics,
    TopicAction,
    TopicPlan,
    plan_topics,
    same_topic,
    selected_topics,
    unclaimed_topics,
)
from ottla.mirror.progress_topic import JournalWriter, LeaseLapsed, read_journal
from ottla.mirror.report import MirrorReport, statuses, total
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock

_AT_START: Final = frozenset({TopicAction.CREATE, TopicAction.COPY})


def views_of(
    source: MirroredCluster, target: MirroredCluster, options: MirrorOptions
) -> tuple[ClusterTopics, ClusterTopics]:
    """Both clusters as they are now, as far as a plan needs it.  Raises ClientError."""
    here = source.view(is_selected(options.topics))
    names = [topic.name for topic in selected_topics(here, options.topics)]
    there = target.view(is_one_of(names))
    filled = target.topics_with_records(unclaimed_topics(here, there, options.topics))
    return here, there.with_records(filled)


class FencedMirror:
    """`ends_here`: copy what the source has now, and no more."""

    def __init__(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        options: MirrorOptions,
        *,
        ends_here: bool,
        may_write: Callable[[], bool],
        note: Callable[[str], None],
        failures_max: int | None,
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._may_write = may_write
        self._ends_here = ends_here
        self._owner = str(uuid4())
        self._note = note
        # Before the journal is read: a former mirror's open transaction is decided then.
        self._transactions = self._new_transactions()
        try:
            self._writer = JournalWriter(target.cluster, read_journal(target.cluster))
        except BaseException:
            if self._transactions is not None:
                self._transactions.close()
            raise
        self._copier = Copier(
            source.cluster,
            target.cluster,
            self._writer,
            options,
            may_write=may_write,
            note=note,
            failures_max=failures_max,
            transactions=self._transactions,
        )
        self._groups = GroupCopy(source.cluster, target.cluster, options.groups, note)
        self._publisher = AuditPublisher(source.cluster, target.cluster, note)
        self._before: dict[TopicPartition, Counts] = {}
        self._done = Counts()
        self._left_alone: dict[str, str] = {}
        self._refused: set[str] = set()
        self._whole_topics_put_off: set[str] = set()
        # The topics that were not copied at the last refresh, which are reported once.
        self._reported: Mapping[str, str] = {}
        self._committed_count = 0
        self._cluster_ids = (source.cluster_id(), target.cluster_id())

    def __enter__(self) -> FencedMirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._copier.__exit__(kind, error, traceback)
        self._writer.__exit__(kind, error, traceback)

    def _new_transactions(self) -> CopyTransactions | None:
        """None: records are written outside of transactions."""
        if not self._options.is_transactional:
            return None
        target = self._target.cluster
        if not has_transactions(target):
            self._note("the target has no transactions: records are copied without")
            return None
        return CopyTransactions(target, self._source.cluster_id(), self._options.in_flight_bytes_max, self._may_write)

    @property
    def clock(self) -> Clock:
        return self._target.cluster.clock

    @property
    def is_finished(self) -> bool:
        return self._ends_here and self._copier.is_finished

    @property
    def is_audit_full(self) -> bool:
        """A partition waits until the audit's counts are published."""
        return self._copier.is_audit_full

    @property
    def counts(self) -> Mapping[TopicPartition, Counts]:
        """Of each partition, since its first copy."""
        return {partition: copy.counts for partition, copy in self._copier.copies.items()}

    def report(self, before: Mapping[TopicPartition, Counts] | None = None) -> MirrorReport:
        """The results since the session started, or since these counts."""
        copies = list(self._copier.copies.values())
        counts = self._done.plus(total(copies, self._before if before is None else before))
        return MirrorReport(
            *self._cluster_ids,
            counts,
            statuses(copies),
            dict(self._left_alone),
            self._committed_count,
            frozenset(self._refused),
        )

    def works(self) -> list[CopyRange]:
        """The ranges up to the source's ends that other processes must copy."""
        ends = self._copier.ends
        return [
            CopyRange(copy.source, copy.offsets.source_end, ends[copy.partition])
            for copy in self._copier.copies.values()
            if copy.offsets.source_end < ends[copy.partition]
        ]

    def copy(self) -> None:
        """Continue copying, for a moment."""
        self._copier.turn()

    def drain(self) -> None:
        self._copier.drain()

    def sync_groups(self) -> None:
        """Raises ClientError, LeaseLapsed."""
        if self._transactions is not None:
            # A group must not continue after records that may be rolled back.
            self._copier.finish_progress()
        maps = {partition: copy.offsets for partition, copy in self._copier.copies.items()}
        self._committed_count += self._groups.sync(maps)

    def publish_counts(self) -> None:
        """Publish the counts of the copied records to both clusters.  Raises JournalNotWritten."""
        if self._options.tells_audit:
            self._copier.close_audit()
            self._copier.finish_progress()
            self._publisher.publish(self._copier.copies.values(), self._writer.journal)

    def finish_audit(self) -> None:
        """The same at the end, also counts that waited for an unpublished commit."""
        for _ in range(2):
            self.publish_counts()

    def refresh(self) -> None:
        """Read both clusters; create and change topics, and start to copy new partitions.  Raises ClientError,
        JournalNotWritten."""
        here, there = views_of(self._source, self._target, self._options)
        plans = plan_topics(here, there, self._options)
        self._reported = self._left_alone
        self._left_alone, self._refused, self._whole_topics_put_off = {}, set(), set()
        for plan in plans:
            if not plan.is_copied:
                self._leave_alone(plan.topic, plan.reason, is_refused=plan.decision is TopicAction.REFUSE)
        self._release_replaced(there)
        copied = [plan for plan in plans if plan.is_copied and self._is_made(plan)]
        self._release_others({plan.topic: plan.source_topic_id for plan in copied})
        self._give_way([plan.topic for plan in plans if plan.gives_way])
        target_ids = self._target_ids(copied)
        copied = [plan for plan in copied if plan.topic in target_ids]
        new = [(plan, partition) for plan in copied for partition in self._new_partitions(plan, here, target_ids)]
        if new or any(plan.is_reclaimed for plan in copied):
            self._begin(copied, new, target_ids)

    def _is_made(self, plan: TopicPlan) -> bool:
        try:
            self._target.make(plan, self._options.replication_factor)
        except ClientError as error:
            if error.is_retriable:
                raise
            self._leave_alone(plan.topic, f"the target refuses it: {error}", is_refused=True)
            return False
        return True

    def _target_ids(self, plans: list[TopicPlan]) -> dict[str, UUID]:
        """Waits for topics that were just created; without topics that were deleted since."""
        found: dict[str, UUID] = {}
        for plan in plans:
            try:
                found[plan.topic] = self._target.cluster.topic(plan.topic).topic_id
            except UnknownTopic as error:
                self._leave_alone(plan.topic, f"it is not copied yet: {error}", is_refused=True)
        return found

    def _release_replaced(self, target: ClusterTopics) -> None:
        """Before the target's topic is recreated: batches in flight to the old one must not come to the new one."""
        self._release(
            {
                copy.source.topic
                for copy in self._copier.copies.values()
                if (found := target.topics.get(copy.source.topic)) is None or found.topic_id != copy.target_topic_id
            }
        )

    def _release_others(self, ids: Mapping[str, UUID]) -> None:
        self._release(
            {
                copy.source.topic
                for copy in self._copier.copies.values()
                if ids.get(copy.source.topic) != copy.source.topic_id
            }
        )

    def _release(self, gone: set[str]) -> None:
        if not gone:
            return
        leaving = [copy for copy in self._copier.copies.values() if copy.source.topic in gone]
        self._copier.release(gone)
        self._done = self._done.plus(total(leaving, self._before))
        for copy in leaving:
            self._before.pop(copy.partition, None)
        self._note(f"not copied any more, or recreated: {', '.join(sorted(gone))}")

    def _new_partitions(
        self, plan: TopicPlan, here: ClusterTopics, target_ids: Mapping[str, UUID]
    ) -> list[SourcePartition]:
        known = self._copier.copies
        return [
            SourcePartition(here.cluster_id, plan.source_topic_id, plan.topic, number)
            for number in range(plan.partitions_count)
            if (copy := known.get(TopicPartition(plan.topic, number))) is None
            or copy.target_topic_id != target_ids[plan.topic]
        ]

    def _begin(
        self,
        plans: list[TopicPlan],
        new: list[tuple[TopicPlan, SourcePartition]],
        target_ids: Mapping[str, UUID],
    ) -> None:
        """Claims and first progress are stored before the first record is copied."""
        self._copier.finish_progress()
        self._writer.make_sure()
        found = self._copies_of(new, target_ids)
        ends = self._ends_of(found) if self._ends_here else {}
        claimed = [plan for plan in plans if plan.is_reclaimed and plan.topic not in self._whole_topics_put_off]
        now_ms = self._target.cluster.clock.now_ms()
        claims = [
            CopyClaim(plan.topic, target_ids[plan.topic], plan.source_topic_id, plan.origin_cluster_ids, now_ms)
            for plan in claimed
        ]
        # Tasks of the mirror before this one read it, and stop.
        entries = [owner_entry(copy.source, self._owner) for copy in found]
        for copy in found:
            if copy.is_dirty:
                entries += progress_entries(copy.source, copy.progress(now_ms), copy.offsets, self._writer.journal)
        # The claims last: where they are not stored any more, all of this is done again.
        entries += [claim_entry(claim) for claim in claims]
        self._write(entries)
        refused = self._withdraw_circles([plan for plan in claimed if plan.decision in RECLAIMED])
        copies = [copy for copy in found if copy.source.topic not in refused]
        if self._ends_here:
            copies = [copy for copy in copies if copy.partition in ends]
        for copy in copies:
            copy.on_progress_sent()
            self._before[copy.partition] = copy.counts
        self._copier.assign(copies, ends)

    def _withdraw_circles(self, claimed: list[TopicPlan]) -> set[str]:
        """Another mirror may have begun to copy a topic the other way in the same moment: both look after they have
        claimed, so at least one sees the other and gives way."""
        if not claimed:
            return set()
        claims = read_journal(self._source.cluster).claims
        circles = {
            plan.topic
            for plan in claimed
            if (other := claims.get(plan.topic)) is not None
            and same_topic(other.target_topic_id, plan.source_topic_id)
            and self._cluster_ids[1] in other.origin_cluster_ids
        }
        if circles:
            self._give_way(circles)
            for topic in circles:
                reason = "a mirror copies it the other way: it would go round in a circle"
                self._leave_alone(topic, reason, is_refused=False)
        return circles

    def _give_way(self, topics: Collection[str]) -> None:
        if topics:
            self._writer.finish()
            self._write([withdrawal_entry(topic) for topic in topics])

    def _write(self, entries: list[Entry]) -> None:
        """Raises JournalNotWritten; LeaseLapsed where another mirror's entries could be overwritten."""
        if not self._may_write():
            raise LeaseLapsed("nothing is written: the mirror's lease has lapsed")
        self._writer.send(entries)
        self._writer.finish()

    def _copies_of(
        self, new: list[tuple[TopicPlan, SourcePartition]], target_ids: Mapping[str, UUID]
    ) -> list[PartitionCopy]:
        """Without those whose start is not known now: the next refresh tries them again."""
        copies: dict[SourcePartition, PartitionCopy] = {}
        for _, source in new:
            stored = stored_copy(self._writer.journal, source, tells_audit=self._options.tells_audit)
            if stored is not None and stored.target_topic_id == target_ids[source.topic]:
                copies[source] = stored
        begin = LATEST if self._options.start == FROM_LATEST else EARLIEST
        fresh = {source.place: plan for plan, source in new if source not in copies}
        starts = try_list_offsets(
            self._source.cluster, dict.fromkeys(fresh, begin), isolation=IsolationLevel.READ_COMMITTED
        )
        # Records of a topic that was no copy before stay before the copy's first record.
        questions = {place: EARLIEST if plan.decision in _AT_START else LATEST for place, plan in fresh.items()}
        theres = try_list_offsets(self._target.cluster, questions)
        for plan, source in new:
            if source in copies:
                continue
            start, there = starts[source.place], theres[source.place]
            if isinstance(start, ClientError):
                self._put_off(plan, source, start)
            elif isinstance(there, ClientError):
                self._put_off(plan, source, there)
            else:
                offsets = OffsetTranslation(start.offset, there.offset)
                audit = CopyCounts(AuditState(offsets.source_end)) if self._options.tells_audit else None
                copies[source] = PartitionCopy(
                    source, target_ids[source.topic], offsets, Counts(), audit, is_dirty=True
                )
        return [copy for copy in copies.values() if copy.source.topic not in self._whole_topics_put_off]

    def _put_off(self, plan: TopicPlan, source: SourcePartition, problem: ClientError) -> None:
        self._leave_alone(plan.topic, f"partition {source.partition} is not copied yet: {problem}", is_refused=True)
        if plan.decision in RECLAIMED - _AT_START:
            # After the claim the records that are no copy are not known any more.
            self._whole_topics_put_off.add(plan.topic)

    def _ends_of(self, copies: list[PartitionCopy]) -> dict[TopicPartition, int]:
        questions = dict.fromkeys((copy.partition for copy in copies), LATEST)
        found = try_list_offsets(self._source.cluster, questions, isolation=IsolationLevel.READ_COMMITTED)
        for partition, answer in found.items():
            if isinstance(answer, ClientError):
                reason = f"partition {partition.partition} is not copied now: {answer}"
                self._leave_alone(partition.topic, reason, is_refused=True)
        return {partition: each.offset for partition, each in found.items() if isinstance(each, OffsetAnswer)}

    def _leave_alone(self, topic: str, reason: str, *, is_refused: bool) -> None:
        """`is_refused`: an operator has to decide, or it could not be done now."""
        if is_refused:
            self._refused.add(topic)
        self._left_alone[topic] = reason
        if self._reported.get(topic) != reason:
            self._note(f"{topic}: {reason}")
