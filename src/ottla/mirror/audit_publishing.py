"""Publishes the counts of copied records to the audit of both clusters, the source and the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.audit.commits import commit_counts
from ottla.audit.count import Count
from ottla.audit.topic import publish
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.audit_commits import MIRROR_TIER, WINDOW_MS, AuditCommit
from ottla.mirror.journal import MirrorJournal, SourcePartition
from ottla.mirror.partition_copy import PartitionCopy


class AuditPublisher:
    """`note` is called once while a cluster does not accept the counts; they are kept, and published later."""

    def __init__(self, source: Cluster, target: Cluster, note: Callable[[str], None]) -> None:
        self._source = source
        self._target = target
        self._note = note
        self._is_noted = False

    def publish(self, copies: Iterable[PartitionCopy], journal: MirrorJournal) -> None:
        """Every commit that is stored and not published yet."""
        closed = [
            (copy, commit)
            for copy in copies
            if copy.audit is not None and (commit := copy.audit.unpublished) is not None and _is_stored(copy, journal)
        ]
        if not closed:
            return
        try:
            for cluster, is_source in ((self._source, True), (self._target, False)):
                publish(cluster, [each for row in closed for each in _counts(*row, is_source=is_source)])
        except ClientError as error:
            if not self._is_noted:
                self._note(f"the audit's counts were not published: {error}; they are published later")
            self._is_noted = True
            return
        self._is_noted = False
        for copy, _ in closed:
            copy.on_counts_published()


def _is_stored(copy: PartitionCopy, journal: MirrorJournal) -> bool:
    """A commit that is published before it is stored could be copied and counted again by the next mirror."""
    stored = journal.progress.get(copy.source)
    state = None if stored is None else stored.audit
    return state is not None and copy.audit is not None and state.unpublished == copy.audit.unpublished


def _counts(copy: PartitionCopy, commit: AuditCommit, *, is_source: bool) -> list[Count]:
    return commit_counts(
        MIRROR_TIER,
        commit_name(copy.source, commit),
        copy.source.topic,
        commit.windows,
        commit.closed_ms,
        topic_id=copy.source.topic_id if is_source else copy.target_topic_id,
        window_ms=WINDOW_MS,
    )


def commit_name(source: SourcePartition, commit: AuditCommit) -> str:
    return f"{source.cluster_id} {source.topic_id} {source} {commit.first}-{commit.end}"
