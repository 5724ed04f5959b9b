"""`Mirror`: one cluster's topics and groups, copied to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import ClientSecurity
from ottla.client.wire.waiting import Waiting
from ottla.mirror.copy_ranges import CopyRange
from ottla.mirror.copy_transactions import RolledBack
from ottla.mirror.fence import Fence, Term
from ottla.mirror.fenced_mirror import FencedMirror, views_of
from ottla.mirror.mirrored_cluster import MirroredCluster, client_of_side
from ottla.mirror.options import FAILURES_MAX, MirrorOptions
from ottla.mirror.plan import plan_topics
from ottla.mirror.progress_topic import JournalNotWritten, LeaseLapsed, make_progress_topic, read_journal
from ottla.mirror.report import MirrorPlan, MirrorReport, PartitionStatus
from ottla.mirror.tail_reading import LogEnds, log_ends
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import MIRROR_GROUP_PREFIX

_STANDBY_S: Final = 0.5
# So long a member waits for its first assignment: brokers hold the first rebalance of a group back for some seconds.
_JOIN_MS: Final = 30_000
# How often counts are published while a partition must wait for that.
_FULL_AUDIT_MS: Final = 500
# A cluster that stays away is noted again after this.
_NOTE_AGAIN_MS: Final = 60_000
_TERM_OVER: Final = (
    "the lease has lapsed, or another mirror of this source has taken over;"
    " copying starts again from the stored progress when the lease is renewed"
)


class SameCluster(OttlaError):
    hint = "name two clusters; a topic of one cluster cannot be copied to the same name there"


class Mirror:
    """Copies topics of `source` to topics of the same names on `target`, with their settings, partitions and groups.

        from ottla.mirror import Mirror, MirrorOptions, Names

        mirror = Mirror("live:9092", "offline:9092", MirrorOptions(topics=Names(("page-.*",))))
        print(mirror.plan().topics)         # what would be made and copied: nothing is changed
        report = mirror.run(once=True)      # everything that is there now
        print(report.counts.records, report.counts.duplicate_records)

    Batches are copied as they are stored.  Each record is copied once, also when the mirror is killed: see the guide's
    page on mirrors for the limits of that.  `source_security` and `target_security` are settings by Kafka's names, or a
    `ClientSecurity`: neither cluster gets the other's secrets.  `note` gets lines for people.
    """

    def __init__(
        self,
        source: str | Sequence[str],
        target: str | Sequence[str],
        options: MirrorOptions | None = None,
        *,
        source_client: ClientOptions | None = None,
        target_client: ClientOptions | None = None,
        source_security: ClientSecurity | Mapping[str, object] | None = None,
        target_security: ClientSecurity | Mapping[str, object] | None = None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.options = options or MirrorOptions()
        self._bootstraps = (source, target)
        self._clients = (
            client_of_side(source_client, source_security),
            client_of_side(target_client, target_security),
        )
        self._note = note

    def plan(self) -> MirrorPlan:
        """The topics that `run` would create and copy.  The target validates the requests; nothing is changed."""
        with self._sides() as (source, target):
            here, there = views_of(source, target, self.options)
            plans = plan_topics(here, there, self.options)
            found = {
                plan.topic: target.check(plan, self.options.replication_factor) for plan in plans if plan.is_copied
            }
            problems = {topic: problem for topic, problem in found.items() if problem is not None}
            return MirrorPlan(here.cluster_id, there.cluster_id, plans, problems)

    def run(
        self,
        *,
        once: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[MirrorReport], None] = lambda report: None,
    ) -> MirrorReport:
        """Copy until `should_stop`; with `once` until what the source has now is copied.

        While another mirror of this source is at work it waits.  `should_stop` and `on_progress` are called
        several times a second.  Raises ClientError where a cluster cannot be reached at the start, JournalNotWritten at
        the end when the last progress could not be stored.
        """
        report: MirrorReport | None = None
        with self._fenced_sides() as (source, target, fence):
            is_reported = False
            # Sessions in a row that ended with an aborted transaction.
            rollbacks_count = 0
            while not should_stop():
                if not fence.wait_held(_STANDBY_S):
                    if not is_reported:
                        self._note("waiting: another mirror of this source is at work, or was killed just now")
                        is_reported = True
                    fence.give_way()
                    continue
                try:
                    report, lapse = self._run_session(source, target, fence, once, should_stop, on_progress)
                except ClientError as error:
                    # An error at the start; a mirror that has worked before waits until the clusters answer.
                    if report is None or not error.is_retriable:
                        raise
                    self._note(str(error))
                    target.cluster.retrying.sleep_ms(_STANDBY_S * 1000)
                    continue
                if lapse is None:
                    break
                rollbacks_count = rollbacks_count + 1 if isinstance(lapse.__cause__, RolledBack) else 0
                if once and rollbacks_count >= FAILURES_MAX:
                    raise JournalNotWritten(str(lapse)) from lapse
                is_reported = False
                fence.give_way()
            return report or MirrorReport(source.cluster_id(), target.cluster_id())

    def run_with(self, copy: Callable[[Sequence[CopyRange]], Sequence[PartitionStatus]]) -> MirrorReport | None:
        """Copy what the source has now, the records by `copy`: it gives shares of the work to `copy_ranges`, here or
        elsewhere, and returns what that does.  None: another mirror of this source is at work.

        Raises what `copy` raises; then it may be called again, and continues where it was.
        """
        with self._fenced_sides() as (source, target, fence):
            deadline = target.cluster.retrying.deadline(_JOIN_MS)
            while not fence.wait_held(_STANDBY_S):
                if deadline.has_passed:
                    return None
            with self._session(source, target, fence, fence.term, once=True) as before:
                before.refresh()
                counted, works = before.counts, before.works()
            done = copy(works) if works else []
            with self._session(source, target, fence, fence.term, once=True) as after:
                after.refresh()
                self._attempt(after.sync_groups)
                return after.report(counted).with_problems(done)

    def status(self) -> list[PartitionStatus]:
        """How far each partition is copied, by the last stored progress, and how far it lags behind the source."""
        with self._sides() as (source, target):
            cluster_id = source.cluster_id()
            journal = read_journal(target.cluster)
            current = {topic.name: topic.topic_id for topic in source.cluster.refresh(None)}
            rows = {
                TopicPartition(each.topic, each.partition): (each, progress)
                for each, progress in journal.progress.items()
                if each.cluster_id == cluster_id and current.get(each.topic) == each.topic_id
            }
            ends = log_ends(source.cluster, rows, IsolationLevel.READ_COMMITTED)
            return [
                PartitionStatus(
                    each.topic,
                    each.partition,
                    progress.source_end,
                    progress.target_end,
                    max(0, end.end - progress.source_end) if isinstance(end := ends[partition], LogEnds) else None,
                    progress.counts,
                    progress.updated_ms,
                    None if isinstance(ends[partition], LogEnds) else str(ends[partition]),
                )
                for partition, (each, progress) in sorted(rows.items())
            ]

    def _run_session(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        fence: Fence,
        once: bool,
        should_stop: Callable[[], bool],
        on_progress: Callable[[MirrorReport], None],
    ) -> tuple[MirrorReport, LeaseLapsed | None]:
        """None: it has finished; else why the term is over."""
        term = fence.term
        with self._session(source, target, fence, term, once=once) as session:
            lapse = LeaseLapsed("the mirror's lease has lapsed")
            try:
                if self._copy(session, lambda: fence.is_held_since(term), once, should_stop, on_progress):
                    return session.report(), None
            except LeaseLapsed as error:
                lapse = error
            if lapse.__cause__ is not None:
                # More than a lapse: the target has refused something, or another mirror has taken over.
                self._note(str(lapse))
            self._note(_TERM_OVER)
            return session.report().without_problems(), lapse

    def _copy(
        self,
        session: FencedMirror,
        is_held: Callable[[], bool],
        once: bool,
        should_stop: Callable[[], bool],
        on_progress: Callable[[MirrorReport], None],
    ) -> bool:
        """False: the fence was lost.  Raises LeaseLapsed where that was seen by a write."""
        session.refresh()
        clock = session.clock
        refreshed_ms = synced_ms = published_ms = clock.monotonic_ms()
        while is_held() and not session.is_finished and not should_stop():
            session.copy()
            on_progress(session.report())
            now_ms = clock.monotonic_ms()
            if not once and now_ms - refreshed_ms >= self.options.refresh_interval_ms:
                self._attempt(session.refresh)
                refreshed_ms = clock.monotonic_ms()
            if now_ms - synced_ms >= self.options.groups_interval_ms:
                self._attempt(session.sync_groups)
                synced_ms = clock.monotonic_ms()
            publish_after_ms = _FULL_AUDIT_MS if session.is_audit_full else self.options.audit_interval_ms
            if now_ms - published_ms >= min(publish_after_ms, self.options.audit_interval_ms):
                self._attempt(session.publish_counts)
                published_ms = clock.monotonic_ms()
        if not is_held():
            return False
        session.drain()
        self._attempt(session.sync_groups)
        self._attempt(session.finish_audit)
        return True

    def _session(
        self, source: MirroredCluster, target: MirroredCluster, fence: Fence, term: Term, *, once: bool
    ) -> FencedMirror:
        return FencedMirror(
            source,
            target,
            self.options,
            ends_here=once,
            may_write=lambda: fence.is_held_since(term),
            note=self._note,
            failures_max=FAILURES_MAX if once else None,
        )

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step that is tried again at the next interval when a cluster does not answer."""
        try:
            step()
        except LeaseLapsed:
            raise
        except (ClientError, JournalNotWritten) as error:
            if isinstance(error, ClientError) and not error.is_retriable:
                raise
            self._note(str(error))

    @contextmanager
    def _sides(self) -> Iterator[tuple[MirroredCluster, MirroredCluster]]:
        with (
            self._side("source", self._bootstraps[0], self._clients[0]) as source,
            self._side("target", self._bootstraps[1], self._clients[1]) as target,
        ):
            sides = MirroredCluster(source), MirroredCluster(target)
            if sides[0].cluster_id() == sides[1].cluster_id():
                raise SameCluster(f"source and target are the same cluster, {sides[0].cluster_id()}")
            yield sides

    @contextmanager
    def _fenced_sides(self) -> Iterator[tuple[MirroredCluster, MirroredCluster, Fence]]:
        """With the fence between this mirror and others of the same source."""
        with self._sides() as (source, target):
            make_progress_topic(target.cluster, self.options.replication_factor)
            group_id = MIRROR_GROUP_PREFIX + source.cluster_id()
            with Fence(target.cluster, self._bootstraps[1], group_id, self.options.session_timeout_ms) as fence:
                yield source, target, fence

    def _side(self, name: str, bootstrap: str | Sequence[str], client: ClientOptions) -> Cluster:
        """`note` gets a line when a call to it has to wait."""
        waiting = Waiting(lambda line: self._note(f"{name}: {line}"), again_after_ms=_NOTE_AGAIN_MS)
        return Cluster(bootstrap, client, dial=waiting.dial, on_wait=waiting.on_wait)
