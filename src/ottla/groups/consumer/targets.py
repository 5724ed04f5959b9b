"""New targets for all members of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ottla.groups.assignors import ASSIGNORS, Assignment, Assignor, MemberSpec
from ottla.groups.consumer.admission import Sender
from ottla.groups.consumer.group_epoch import NextEpoch
from ottla.groups.consumer.heartbeat_context import HeartbeatContext
from ottla.groups.consumer.member import MemberMetadata
from ottla.groups.consumer.record_draft import RecordDraft
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.consumer.subscriptions import TopicLookup


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
