"""The plan of a mirror: topics to create, to keep in step and to copy, and why others are left alone.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final
from uuid import UUID

from ottla.mirror.journal import CopyClaim
from ottla.mirror.options import APPEND, MirrorOptions, Names
from ottla.model.own_names import OWN_TOPICS

NO_ID: Final = UUID(int=0)


class TopicAction(Enum):
    """What becomes of a topic.

    CREATE     it is not on the target: it is made, and copied
    ADOPT      it is there, and no other mirror's copy: it becomes the copy
    COPY       it is the copy of this topic
    APPEND     it is the copy of a topic of this name that was deleted; the new one's records come after
    SKIP       copying it would go round in a circle, or it is another cluster's copy
    REFUSE     it may not be touched as it is
    """

    CREATE = "create"
    ADOPT = "adopt"
    COPY = "copy"
    APPEND = "append"
    SKIP = "skip"
    REFUSE = "refuse"


COPIED: Final = frozenset({TopicAction.CREATE, TopicAction.ADOPT, TopicAction.COPY, TopicAction.APPEND})
# A claim is written for these.
RECLAIMED: Final = frozenset({TopicAction.CREATE, TopicAction.ADOPT, TopicAction.APPEND})


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as it is now.  `configs` are its own settings.  `has_records` only where it was requested; None: not
    known now."""

    name: str
    topic_id: UUID
    partitions_count: int
    is_internal: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)
    has_records: bool | None = False


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """`claims`: which of its topics are copies, and of what."""

    cluster_id: str
    topics: Mapping[str, TopicView]
    claims: Mapping[str, CopyClaim] = field(default_factory=dict)

    def with_records(self, known: Mapping[str, bool | None]) -> ClusterTopics:
        """The same, knowing of these topics whether they have records."""
        views = {name: replace(view, has_records=known.get(name, False)) for name, view in self.topics.items()}
        return replace(self, topics=views)

    def claim_of(self, topic: str) -> CopyClaim | None:
        """The claim of the topic as it is now; that of a deleted one of its name does not count."""
        claim, found = self.claims.get(topic), self.topics.get(topic)
        if claim is None or found is None or not same_topic(claim.target_topic_id, found.topic_id):
            return None
        return claim


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Counts of partitions: those of the source, and those that the target has (0: no topic).

    is_reclaimed      there is no claim on the target, or the source has its records from elsewhere now
    gives_way         the claim on the target closes a circle, and is withdrawn
    """

    topic: str
    decision: TopicAction
    reason: str
    source_topic_id: UUID
    partitions_count: int
    target_partitions_count: int = 0
    set_configs: Mapping[str, str] = field(default_factory=dict)
    unset_configs: tuple[str, ...] = ()
    origin_cluster_ids: tuple[str, ...] = ()
    is_reclaimed: bool = False
    gives_way: bool = False

    @property
    def is_copied(self) -> bool:
        return self.decision in COPIED

    @property
    def adds_partitions(self) -> bool:
        return 0 < self.target_partitions_count < self.partitions_count


def selected_topics(source: ClusterTopics, names: Names) -> list[TopicView]:
    """By name, without the cluster's own."""
    return [
        topic
        for name, topic in sorted(source.topics.items())
        if not topic.is_internal and name not in OWN_TOPICS and name in names
    ]


def unclaimed_topics(source: ClusterTopics, target: ClusterTopics, names: Names) -> dict[str, int]:
    """Topics of the target for which `plan_topics` needs `has_records`, with the counts of their partitions."""
    return {
        topic.name: target.topics[topic.name].partitions_count
        for topic in selected_topics(source, names)
        if topic.name in target.topics and target.claim_of(topic.name) is None
    }


def plan_topics(source: ClusterTopics, target: ClusterTopics, options: MirrorOptions) -> list[TopicPlan]:
    """One for each selected topic of the source, by name."""
    return [_plan(topic, source, target, options) for topic in selected_topics(source, options.topics)]


def _plan(topic: TopicView, source: ClusterTopics, target: ClusterTopics, options: MirrorOptions) -> TopicPlan:
    decision, reason = _decide(topic, source, target, options)
    there = target.topics.get(topic.name)
    copied_from = source.claim_of(topic.name)
    before = copied_from.origin_cluster_ids if copied_from else ()
    origins = (*(each for each in before if each != source.cluster_id), source.cluster_id)
    claim = target.claim_of(topic.name)
    wanted = {name: value for name, value in topic.configs.items() if name in options.configs}
    has = there.configs if there is not None else {}
    in_step = decision in COPIED
    return TopicPlan(
        topic.name,
        decision,
        reason,
        topic.topic_id,
        topic.partitions_count,
        0 if there is None else there.partitions_count,
        {name: value for name, value in wanted.items() if has.get(name) != value} if in_step else {},
        _unset(wanted, has, options.configs) if decision in (TopicAction.COPY, TopicAction.APPEND) else (),
        origins,
        decision in RECLAIMED
        or (decision is TopicAction.COPY and claim is not None and claim.origin_cluster_ids != origins),
        decision is TopicAction.SKIP and claim is not None and claim.source_cluster_id == source.cluster_id,
    )


def _unset(wanted: Mapping[str, str], has: Iterable[str], names: Names) -> tuple[str, ...]:
    return tuple(sorted(name for name in has if name in names and name not in wanted))


def _decide(
    topic: TopicView, source: ClusterTopics, target: ClusterTopics, options: MirrorOptions
) -> tuple[TopicAction, str]:
    name = topic.name
    came_from = source.claim_of(name)
    there, claim = target.topics.get(name), target.claim_of(name)
    is_circle = came_from is not None and target.cluster_id in came_from.origin_cluster_ids
    is_ours = claim is not None and claim.source_cluster_id == source.cluster_id
    if came_from is not None and is_circle and (not is_ours or _opens(came_from, source, target)):
        return TopicAction.SKIP, "the source has it from the target: it would go round in a circle"
    if there is None:
        return TopicAction.CREATE, "it is not on the target"
    if claim is None:
        if there.has_records is None and options.existing_topics != APPEND:
            return TopicAction.REFUSE, "whether the target's topic of this name has records is not known now"
        if there.has_records and options.existing_topics != APPEND:
            return TopicAction.REFUSE, "the target has a topic of this name with records that no mirror wrote"
        return TopicAction.ADOPT, "the target has it, and no mirror writes it"
    if claim.source_cluster_id != source.cluster_id:
        return TopicAction.SKIP, f"on the target it is the copy of cluster {claim.source_cluster_id}"
    if not same_topic(claim.source_topic_id, topic.topic_id):
        if options.recreated_topics != APPEND:
            return TopicAction.REFUSE, "the source's topic was deleted and recreated since it was copied"
        return (
            TopicAction.APPEND,
            "the source's topic was deleted and recreated: its records come after those of the old",
        )
    if there.partitions_count > topic.partitions_count:
        return TopicAction.COPY, f"the target has more partitions ({there.partitions_count}): keys are spread otherwise"
    return TopicAction.COPY, "it is its copy"


def _opens(came_from: CopyClaim, source: ClusterTopics, target: ClusterTopics) -> bool:
    """Mirrors that started in the same moment have closed a circle: all of them see the same one, and the one to the
    cluster whose id is the least gives way."""
    origins = came_from.origin_cluster_ids
    return target.cluster_id == min(*origins[origins.index(target.cluster_id) :], source.cluster_id)


def same_topic(one: UUID, other: UUID) -> bool:
    """Old brokers give no ids: then the name has to do."""
    return NO_ID in (one, other) or one == other
