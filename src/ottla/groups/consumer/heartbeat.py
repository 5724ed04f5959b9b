"""The decision on one heartbeat of a member that joins or stays.

1. The member's metadata may change the group's subscription; then the group epoch rises.
2. A group epoch above that of the targets means new targets, for all members.
3. The member moves one step towards its own target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.consumer.admission import Sender
from ottla.groups.consumer.group_epoch import NextEpoch, next_epoch
from ottla.groups.consumer.heartbeat_context import HeartbeatContext
from ottla.groups.consumer.member import CurrentAssignment, MemberMetadata
from ottla.groups.consumer.reconciliation import Reconciliation
from ottla.groups.consumer.record_draft import RecordDraft
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.consumer.targets import put_targets
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError


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
    """Raises `RequestError` for a pattern that cannot be used, and for a member that must join anew."""
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
            "the member's state was written by a newer broker: it must give up all its partitions and join anew",
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
