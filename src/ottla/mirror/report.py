"""The results of a mirror so far, and its position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.mirror.journal import Counts
from ottla.mirror.partition_copy import PartitionCopy, Phase
from ottla.mirror.plan import TopicPlan
from ottla.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """`lag_offsets` None: the source's end is not known.  `problem` None: it is copied, or was when last seen."""

    topic: str
    partition: int
    source_end: int
    target_end: int
    lag_offsets: int | None
    counts: Counts
    updated_ms: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """`counts` of this run alone.  `left_alone`: topics that are not copied, or not whole, with the reason;
    `refused_topics`: those of them for which an operator has to decide, or whose state is not known."""

    source_cluster_id: str
    target_cluster_id: str
    counts: Counts = field(default_factory=Counts)
    partitions: Sequence[PartitionStatus] = ()
    left_alone: Mapping[str, str] = field(default_factory=dict)
    committed_group_offsets: int = 0
    refused_topics: frozenset[str] = frozenset()

    def with_problems(self, done: Iterable[PartitionStatus]) -> MirrorReport:
        """The same with the problems that others met."""
        problems = {(each.topic, each.partition): each.problem for each in done}
        partitions = [
            replace(each, problem=each.problem or problems.get((each.topic, each.partition)))
            for each in self.partitions
        ]
        return replace(self, partitions=partitions)

    def without_problems(self) -> MirrorReport:
        """The same while another mirror works: this one's problems are not current any more."""
        return replace(self, partitions=[replace(each, problem=None) for each in self.partitions])

    @property
    def lag_offsets(self) -> int:
        return sum(each.lag_offsets or 0 for each in self.partitions)

    @property
    def stuck(self) -> list[PartitionStatus]:
        return [each for each in self.partitions if each.problem is not None]


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """`problems`: topics whose plan the target would refuse, with its message."""

    source_cluster_id: str
    target_cluster_id: str
    topics: Sequence[TopicPlan]
    problems: Mapping[str, str] = field(default_factory=dict)


def statuses(copies: Iterable[PartitionCopy]) -> list[PartitionStatus]:
    return [
        PartitionStatus(
            copy.source.topic,
            copy.source.partition,
            copy.offsets.source_end,
            copy.offsets.target_end,
            copy.lag_offsets,
            copy.counts,
            problem=copy.problem if copy.phase is not Phase.COPYING else None,
        )
        for copy in sorted(copies, key=lambda copy: copy.partition)
    ]


def total(copies: Iterable[PartitionCopy], before: Mapping[TopicPartition, Counts]) -> Counts:
    """The increase of the counts since `before`."""
    found = Counts()
    for copy in copies:
        found = found.plus(copy.counts.minus(before.get(copy.partition, Counts())))
    return found
