"""The decision on one heartbeat of a member that joins or stays.

1. The member's metadata may change the group's subscription; then the group epoch rises.
2. A group epoch above that of the targets means new targets, for all members.
3. The member moves one step towards its own target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from ottla.groups.assignors import ASSIGNORS, Assignment, Assignor, MemberSpec
from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.consumer.admission import Sender
from ottla.groups.consumer.member import CurrentAssignment, MemberMetadata, MemberState, common, joined, without
from ottla.groups.consumer.records import RecordDraft, ResolvedPattern
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.settings import GroupSettings
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError

NO_TOPICS_HASH = 0


def hash_topics(names: Iterable[str], topics: TopicsImage) -> int:
    """64 bits that change when a topic of `names` is created, deleted, recreated, or gets more partitions.

    Names are sorted, and the fields cannot be confused: an id has 16 bytes and a count 4.  Stored with the group's
    epoch, so it is the same in every process.  (Kafka 4.1 hashes with XXH3; after a migration between the two each
    group is rebalanced once.)
    """
    existing = sorted(name for name in names if name in topics.by_name)
    if not existing:
        return NO_TOPICS_HASH
    digest = blake2b(digest_size=8)
    for name in existing:
        topic = topics.by_name[name]
        digest.update(topic.topic_id.bytes + topic.partitions_count.to_bytes(4) + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), signed=True)


def resolve_patterns(
    wanted: Collection[str],
    patterns: SubscriptionPatterns,
    topics: TopicsImage,
    sees_topic: Callable[[str], bool] | None,
) -> dict[str, frozenset[str]]:
    """The topics of each pattern.  One that RE2 no longer accepts (it was checked when it arrived) matches none."""
    resolved = {}
    for pattern in wanted:
        try:
            matching = patterns.matching(pattern, topics)
        except RequestError:
            matching = frozenset()
        resolved[pattern] = matching if sees_topic is None else frozenset(filter(sees_topic, matching))
    return resolved


class TopicLookup:
    """The ids of the existing topics that a member subscribes to; equal subscriptions are resolved once."""

    def __init__(self, resolved: Mapping[str, frozenset[str]], topics: TopicsImage) -> None:
        self._resolved = resolved
        self._topics = topics
        self._found: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}

    def topic_ids(self, metadata: MemberMetadata) -> frozenset[UUID]:
        subscription = (metadata.topic_names, metadata.topic_pattern)
        found = self._found.get(subscription)
        if found is None:
            by_name = self._topics.by_name
            names = frozenset(metadata.topic_names) | self._resolved.get(metadata.topic_pattern or "", frozenset())
            found = frozenset(by_name[name].topic_id for name in names if name in by_name)
            self._found[subscription] = found
        return found

    def partitions_counts(self, topic_ids: Iterable[UUID]) -> dict[UUID, int]:
        """In order of topic names, so that an assignment is easy to read."""
        found = sorted({self._topics.by_id[topic_id] for topic_id in topic_ids})
        return {topic.topic_id: topic.partitions_count for topic in found}


class HeartbeatContext(NamedTuple):
    """`topics_are_seen`: the group has compared `topics` before, and nothing had changed for it.

    `sees_topic` is that of the member whose heartbeat it is, as in Apache Kafka: patterns are resolved with its rights.
    """

    settings: GroupSettings
    topics: TopicsImage
    patterns: SubscriptionPatterns
    wall_ms: int
    topics_are_seen: bool = False
    sees_topic: Callable[[str], bool] | None = None


class NextEpoch(NamedTuple):
    """`resolved`: the topics of each pattern that a member subscribes to after this decision."""

    group_epoch: int
    resolved: Mapping[str, frozenset[str]]


def next_epoch(
    state: ConsumerGroupState,
    context: HeartbeatContext,
    draft: RecordDraft,
    before: MemberMetadata,
    after: MemberMetadata,
) -> NextEpoch:
    """The group's epoch after a member has changed from `before` to `after`; the old one when the subscription is
    unchanged."""
    has_changed = (before.topic_names, before.topic_pattern) != (after.topic_names, after.topic_pattern)
    if not has_changed and context.topics_are_seen and state.group_epoch > 0:
        return NextEpoch(
            state.group_epoch, {pattern: _known_topics(state, pattern) for pattern in state.pattern_counts}
        )
    names, wanted = _subscribed(state, [before], [after])
    resolved = resolve_patterns(wanted, context.patterns, context.topics, context.sees_topic)
    has_changed |= _put_patterns(state, context, draft, resolved)
    metadata_hash = hash_topics({*names, *(name for found in resolved.values() for name in found)}, context.topics)
    if not has_changed and state.group_epoch > 0 and metadata_hash == state.metadata_hash:
        return NextEpoch(state.group_epoch, resolved)
    draft.put_group_epoch(state.group_epoch + 1, metadata_hash)
    if state.has_topics_record:
        draft.remove_topics()
    return NextEpoch(state.group_epoch + 1, resolved)


def put_departure(state: ConsumerGroupState, context: HeartbeatContext, member_ids: Sequence[str]) -> RecordDraft:
    """The records that remove members.  The next heartbeat of any other member computes new targets."""
    draft = RecordDraft(state.group_id)
    for member_id in member_ids:
        draft.remove_member(member_id)
    names, wanted = _subscribed(state, [state.members[member_id] for member_id in member_ids], [])
    for pattern in state.patterns.keys() - wanted:
        draft.remove_pattern(pattern)
    matched = {name for pattern in wanted for name in _known_topics(state, pattern)}
    draft.put_group_epoch(state.group_epoch + 1, hash_topics({*names, *matched}, context.topics))
    return draft


def _known_topics(state: ConsumerGroupState, pattern: str) -> frozenset[str]:
    known = state.patterns.get(pattern)
    return frozenset() if known is None else known.topic_names


def _put_patterns(
    state: ConsumerGroupState, context: HeartbeatContext, draft: RecordDraft, resolved: Mapping[str, frozenset[str]]
) -> bool:
    """Drafts the current matches of the patterns; returns whether they differ from before."""
    has_changed = False
    for pattern in state.patterns.keys() - resolved.keys():
        draft.remove_pattern(pattern)
    for pattern, topic_names in resolved.items():
        known = state.patterns.get(pattern)
        if known is None or known.topic_names != topic_names:
            draft.put_pattern(pattern, ResolvedPattern(topic_names, context.wall_ms))
            has_changed = True
    return has_changed


def _subscribed(
    state: ConsumerGroupState, before: Sequence[MemberMetadata], after: Sequence[MemberMetadata]
) -> tuple[Collection[str], Collection[str]]:
    """The names and patterns with a subscriber after `before` has become `after`."""
    names: Counter[str] = Counter(state.name_counts)
    patterns: Counter[str] = Counter(state.pattern_counts)
    for metadata in before:
        names.subtract(metadata.topic_names)
        patterns.subtract([metadata.topic_pattern] if metadata.topic_pattern else [])
    for metadata in after:
        names.update(metadata.topic_names)
        patterns.update([metadata.topic_pattern] if metadata.topic_pattern else [])
    return +names, +patterns


def put_targets(
    state: ConsumerGroupState,
    context: HeartbeatContext,
    draft: RecordDraft,
    sender: Sender,
    metadata: MemberMetadata,
    epoch: NextEpoch,
) -> dict[str, Assignment]:
    """Every member's target at the next group epoch, the sender's included.  Only changed targets are logged."""
    lookup = TopicLookup(epoch.resolved, context.topics)
    specs = [
        MemberSpec(member_id, known.instance_id, lookup.topic_ids(known), state.targets.get(member_id, {}))
        for member_id, known in state.members.items()
        if member_id not in (sender.member_id, sender.replaces)
    ]
    own_target = state.targets.get(sender.replaces or sender.member_id, {})
    specs.append(MemberSpec(sender.member_id, metadata.instance_id, lookup.topic_ids(metadata), own_target))
    assignor = preferred_assignor(state, context, sender.metadata, metadata)
    subscribed = frozenset().union(*{spec.topic_ids for spec in specs})
    targets = assignor.assign(specs, lookup.partitions_counts(subscribed))
    for member_id, target in targets.items():
        if target != state.targets.get(member_id):
            draft.put_target(member_id, target)
    draft.put_target_epoch(epoch.group_epoch)
    return targets


def preferred_assignor(
    state: ConsumerGroupState, context: HeartbeatContext, before: MemberMetadata, after: MemberMetadata
) -> Assignor:
    """The assignor that most members request after `before` has become `after`."""
    counts: Counter[str] = Counter(state.assignor_counts)
    counts.subtract(_asked(before))
    counts.update(_asked(after))
    return ASSIGNORS[preferred_name(counts, context.settings.consumer_assignors)]


def preferred_name(counts: Counter[str], offered: tuple[str, ...]) -> str:
    """With a tie, or when no member requests one, the first that the broker offers."""
    # A member may have joined when the broker still offered its assignor.
    return max(offered, key=lambda name: (counts[name], -offered.index(name)))


def _asked(metadata: MemberMetadata) -> Iterable[str]:
    return () if metadata.server_assignor is None else (metadata.server_assignor,)


# One step of a member towards its target: what it must revoke first, what it is assigned, which epoch it is at.
#
# A partition is never assigned while another member holds it, and an epoch is never raised while the member still holds
# what it must revoke.  So at any time at most one member may read a partition, even with lost or late requests
# (KIP-848, "Reconciliation").


class Reconciliation(NamedTuple):
    """`owned` is what the member reports to hold; None when this heartbeat leaves it out.

    `is_taken` returns whether a member other than this one holds a partition.
    """

    target_epoch: int
    target: Assignment
    owned: Assignment | None
    is_taken: Callable[[UUID, int], bool]

    def step(self, current: CurrentAssignment) -> CurrentAssignment | None:
        """The member's assignment after this heartbeat; unchanged when nothing can move.

        None: its state is unknown to this broker, and it must rejoin.
        """
        if current.is_reconciled_to(self.target_epoch):
            return current
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            if self._still_holds(current.pending_revocation):
                return current
            # Everything is revoked: it leaves its old epoch.
            return self._next(current, current.member_epoch + 1)
        if current.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                return None
            return self._next(current, self.target_epoch)
        return self._next(current, current.member_epoch)

    def _still_holds(self, partitions: Assignment) -> bool:
        # Silence does not prove that a partition was revoked.
        return self.owned is None or bool(common(partitions, self.owned))

    def _next(self, current: CurrentAssignment, epoch_until_revoked: int) -> CurrentAssignment:
        kept = common(current.assigned, self.target)
        to_revoke = without(current.assigned, kept)
        if to_revoke and self._still_holds(to_revoke):
            return _moved(current, epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
        wanted = without(self.target, kept)
        free = self._free(wanted)
        state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
        return _moved(current, self.target_epoch, state, joined(kept, free), {})

    def _free(self, wanted: Assignment) -> Assignment:
        free = {}
        for topic_id, partitions in wanted.items():
            untaken = frozenset(partition for partition in partitions if not self.is_taken(topic_id, partition))
            if untaken:
                free[topic_id] = untaken
        return free


def _moved(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment
) -> CurrentAssignment:
    # The epoch before this step, even when it stays: for a member that must revoke something, a heartbeat of an older
    # epoch proves nothing, since the partitions it lacks may have been assigned afterwards.
    moved = CurrentAssignment(epoch, current.member_epoch, state, assigned, pending)
    unchanged = moved._replace(previous_member_epoch=current.previous_member_epoch) == current
    return current if unchanged else moved


class HeartbeatDecision(NamedTuple):
    """`draft` holds what changes; `metadata` and `current` are the member's, after the change."""

    draft: RecordDraft
    metadata: MemberMetadata
    current: CurrentAssignment
    group_epoch: int


def decide_heartbeat(
    state: ConsumerGroupState,
    context: HeartbeatContext,
    command: ConsumerGroupHeartbeat,
    sender: Sender,
    owned: Assignment | None,
) -> HeartbeatDecision:
    """Raises `RequestError` for a pattern that cannot be used, and for a member that must rejoin."""
    draft = RecordDraft(state.group_id)
    metadata = merge(sender.metadata, command)
    if metadata.topic_pattern is not None and metadata.topic_pattern != sender.metadata.topic_pattern:
        context.patterns.matching(metadata.topic_pattern, context.topics)  # raises when it cannot be used
    if sender.replaces is not None:
        draft.remove_member(sender.replaces)
    if sender.is_new or metadata != sender.metadata:
        draft.put_member(sender.member_id, metadata)
    epoch = next_epoch(state, context, draft, sender.metadata, metadata)
    target_epoch, target = _target(state, context, draft, sender, metadata, epoch)
    current = Reconciliation(target_epoch, target, owned, _taken_by_others(state, sender)).step(sender.current)
    if current is None:
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member's state was written by a newer broker: it must give up all its partitions and rejoin",
        )
    if current is not sender.current or sender.is_new:
        draft.put_current(sender.member_id, current)
    return HeartbeatDecision(draft, metadata, current, epoch.group_epoch)


def _target(
    state: ConsumerGroupState,
    context: HeartbeatContext,
    draft: RecordDraft,
    sender: Sender,
    metadata: MemberMetadata,
    epoch: NextEpoch,
) -> tuple[int, Assignment]:
    if epoch.group_epoch > state.assignment_epoch:
        targets = put_targets(state, context, draft, sender, metadata, epoch)
        return epoch.group_epoch, targets[sender.member_id]
    target = state.targets.get(sender.replaces or sender.member_id, {})
    if sender.replaces is not None:
        draft.put_target(sender.member_id, target)
    return state.assignment_epoch, target


def _taken_by_others(state: ConsumerGroupState, sender: Sender) -> Callable[[UUID, int], bool]:
    own_ids = {None, sender.member_id, sender.replaces}
    return lambda topic_id, partition: state.holder(topic_id, partition) not in own_ids


def merge(known: MemberMetadata, command: ConsumerGroupHeartbeat) -> MemberMetadata:
    """The member's new fields, and its former ones where the heartbeat leaves them out."""
    names = known.topic_names if command.topic_names is None else tuple(sorted(set(command.topic_names)))
    pattern = known.topic_pattern if command.topic_pattern is None else command.topic_pattern or None
    timeout_ms = known.rebalance_timeout_ms if command.rebalance_timeout_ms == -1 else command.rebalance_timeout_ms
    return MemberMetadata(
        command.instance_id or known.instance_id,
        command.rack_id or known.rack_id,
        command.client_id,
        command.client_host,
        names,
        pattern,
        timeout_ms,
        command.server_assignor or known.server_assignor,
    )
