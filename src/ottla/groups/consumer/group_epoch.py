"""When a group's epoch rises: its subscription, or one of the topics that it subscribes to, has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.groups.consumer.heartbeat_context import HeartbeatContext
from ottla.groups.consumer.member import MemberMetadata
from ottla.groups.consumer.record_codec import ResolvedPattern
from ottla.groups.consumer.record_draft import RecordDraft
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.consumer.subscriptions import hash_topics, resolve_patterns


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
    resolved = resolve_patterns(wanted, context.patterns, context.topics)
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
