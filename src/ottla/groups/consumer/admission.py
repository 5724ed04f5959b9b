"""The sender of a heartbeat: a known member, a new one, or a static one that has returned under another id."""

from __future__ import annotations

from typing import NamedTuple

from ottla.groups.assignors import Assignment
from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_METADATA,
    NOTHING_ASSIGNED,
    CurrentAssignment,
    MemberMetadata,
    is_within,
)
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError


class Sender(NamedTuple):
    """The member as it was before this heartbeat.  `replaces` is the id under which a static member was known."""

    member_id: str
    metadata: MemberMetadata
    current: CurrentAssignment
    is_new: bool
    replaces: str | None = None


def admit(
    state: ConsumerGroupState, command: ConsumerGroupHeartbeat, member_id: str, owned: Assignment | None, size_max: int
) -> Sender:
    """Raises `RequestError` when the sender is not, or is no longer, the member that it claims to be, or when the group
    is full."""
    is_joining = command.member_epoch == JOIN_EPOCH
    if command.instance_id is not None and command.instance_id in state.static_ids:
        return _admit_static(state, command, command.instance_id, member_id, owned)
    if command.instance_id is not None and not is_joining:
        raise unknown_instance(command.instance_id)
    metadata = state.members.get(member_id)
    if metadata is None:
        if not is_joining:
            raise unknown_member(state, member_id)
        if len(state.members) >= size_max:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {state.group_id} has {len(state.members)} members, and {size_max} are allowed "
                "(group.consumer.max.size)",
            )
        return Sender(member_id, NO_METADATA, NOTHING_ASSIGNED, is_new=True)
    current = state.current(member_id)
    _check_epoch(command.member_epoch, current, owned)
    return Sender(member_id, metadata, current, is_new=False)


def unknown_member(state: ConsumerGroupState, member_id: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {state.group_id}")


def unknown_instance(instance_id: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")


def fenced_instance(instance_id: str, member_id: str) -> RequestError:
    return RequestError(
        ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id} belongs to another member now ({member_id})"
    )


def _admit_static(
    state: ConsumerGroupState,
    command: ConsumerGroupHeartbeat,
    instance_id: str,
    member_id: str,
    owned: Assignment | None,
) -> Sender:
    holder_id = state.static_ids[instance_id]
    metadata, current = state.members[holder_id], state.current(holder_id)
    if command.member_epoch != JOIN_EPOCH:
        if holder_id != member_id:
            raise fenced_instance(instance_id, holder_id)
        _check_epoch(command.member_epoch, current, owned)
        return Sender(member_id, metadata, current, is_new=False)
    if current.member_epoch != LEAVE_STATIC_EPOCH:
        raise RequestError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the instance id {instance_id} is in use by {holder_id}; it is free when that member has left, "
            "or when its session has ended",
        )
    # It joins without partitions.  Its former id, which it replaces, still holds them, so no other member has them.
    return Sender(member_id, metadata, NOTHING_ASSIGNED, is_new=True, replaces=holder_id)


def _check_epoch(epoch: int, current: CurrentAssignment, owned: Assignment | None) -> None:
    if epoch == current.member_epoch:
        return
    # The answer that raised the epoch may have been lost.  Then the member cannot hold the partitions of that answer.
    missed_one = epoch < current.member_epoch and epoch == current.previous_member_epoch
    if missed_one and owned is not None and is_within(owned, current.assigned):
        return
    raise RequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member says epoch {epoch} and its group knows it at {current.member_epoch}: "
        "it must give up all its partitions and rejoin",
    )
