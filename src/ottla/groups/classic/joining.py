"""JoinGroup to a classic group: whether a member may join, under which id, and whether the group rebalances."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groups.classic.member import Member
from ottla.groups.classic.rebalance import Rebalance
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import JoinGroup
from ottla.groups.member_bytes import BARE_MEMBER_BYTES, bytes_of_protocols
from ottla.groups.moment import Moment
from ottla.groups.replies import JoinReply
from ottla.groups.shared_bytes import network_of
from ottla.model.error_code import ErrorCode

Reply = Callable[[JoinReply], None]


def join(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    """Decide one JoinGroup; it is answered now, or when the rebalance that it waits for ends."""
    known_id = command.member_id or rebalance.roster.static_id(command.instance_id) or ""
    if not _has_room_for(rebalance, known_id):
        _refuse_with(rebalance, known_id, moment)
        refuse(rebalance, reply, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif not _supports(rebalance, command):
        refuse(rebalance, reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id)
    elif not _has_memory_for(rebalance, known_id, command):
        rebalance.services.member_bytes.note_refused(command.group_id, command.client_host)
        refuse(rebalance, reply, ErrorCode.COORDINATOR_NOT_AVAILABLE, command.member_id)
    elif command.member_id:
        _join_known(rebalance, command, reply, moment)
    elif command.instance_id is not None:
        _join_static(rebalance, command, command.instance_id, reply, moment)
    else:
        _join_dynamic(rebalance, command, reply, moment)


def refuse(rebalance: Rebalance, reply: Reply, error: ErrorCode, member_id: str) -> None:
    rebalance.services.answer(reply, JoinReply(error, member_id))


def _has_room_for(rebalance: Rebalance, member_id: str) -> bool:
    """While members join, only joined ones count: a limit that was lowered keeps the first to join."""
    roster, max_size = rebalance.roster, rebalance.services.settings.max_size
    member = roster.members.get(member_id)
    if rebalance.state is GroupState.EMPTY:
        return True
    if rebalance.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_reply is not None) or roster.joined_count < max_size
    return member is not None or len(roster) < max_size


def _has_memory_for(rebalance: Rebalance, member_id: str, command: JoinGroup) -> bool:
    """Of all groups, and of the client's network.  A member that sends no more than before is always admitted."""
    member = rebalance.roster.members.get(member_id)
    before_bytes = -BARE_MEMBER_BYTES if member is None else bytes_of_protocols(member.protocols)
    more_bytes = bytes_of_protocols(command.protocols) - before_bytes
    return rebalance.roster.held.has_room_for(more_bytes, network_of(command.client_host))


def _refuse_with(rebalance: Rebalance, member_id: str, moment: Moment) -> None:
    """Refuse a join; a former member that rejoins too late for a full group is removed."""
    rebalance.roster.forget_pending(member_id)
    if member_id in rebalance.roster.members:
        rebalance.remove(member_id)
    rebalance.complete_if_all_joined(moment)


def _supports(rebalance: Rebalance, command: JoinGroup) -> bool:
    if rebalance.state is GroupState.EMPTY:
        return bool(command.protocol_type and command.protocols)
    if rebalance.roster.members and rebalance.protocol_type != command.protocol_type:
        return False
    return bool(command.protocol_type) and rebalance.roster.supports(command.protocols)


def _join_dynamic(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    member_id = rebalance.services.new_member_id(command.client_id)
    if command.requires_known_member_id:
        rebalance.expect_pending(member_id, command.session_timeout_ms, moment)
        refuse(rebalance, reply, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    else:
        rebalance.add(member_id, command, reply, moment)


def _join_static(
    rebalance: Rebalance, command: JoinGroup, instance_id: str, reply: Reply, moment: Moment
) -> None:  # fmt: skip
    """A static member without an id: a new one, or one whose restarted process replaces it."""
    member_id = rebalance.services.new_member_id(instance_id)
    old_id = rebalance.roster.static_id(instance_id)
    if old_id is None:
        rebalance.add(member_id, command, reply, moment)
        return
    old = rebalance.roster.members[old_id]
    if rebalance.state is GroupState.STABLE:
        chosen = rebalance.roster.choose_protocol(old, command.protocols)
        if chosen == rebalance.protocol_name:
            _return_without_rebalance(rebalance, old, member_id, command, reply, moment)
            return
    _replace_static(rebalance, old, member_id, command, reply, moment)


def _return_without_rebalance(
    rebalance: Rebalance, old: Member, member_id: str, command: JoinGroup, reply: Reply, moment: Moment
) -> None:
    """No rebalance: the generation is logged with the new id, which has the old one's assignment (KIP-345).

    A returning leader would compute an assignment that no member awaits.  So the reply says to skip it (KIP-814), or,
    in versions without that field, names another leader: its own old id.
    """
    old_leader_id = rebalance.roster.leader_id
    error = rebalance.replace_static(old, member_id, command, moment)
    if error is not ErrorCode.NONE:
        refuse(rebalance, reply, error, "")
        return
    member = rebalance.roster.members[member_id]
    rebalance.roster.set_protocols(member, tuple(command.protocols))
    rebalance.start_session(member, moment)
    if command.may_skip_assignment:
        leads = rebalance.roster.leader_id == member_id
        answer = rebalance.joined(member, skips_assignment=leads)
    else:
        answer = rebalance.joined(member, leader_id=old_leader_id)
    rebalance.services.answer(reply, answer)


def _replace_static(
    rebalance: Rebalance, old: Member, member_id: str, command: JoinGroup, reply: Reply, moment: Moment
) -> None:
    """The new id joins in place of the old one while the others join too; requests of the old one are fenced."""
    roster = rebalance.roster
    led = roster.leader_id == old.member_id
    rebalance.remove(old.member_id, ErrorCode.FENCED_INSTANCE_ID)
    rebalance.enter(member_id, command, reply, moment)
    if led:
        roster.leader_id = member_id
    rebalance.prepare_or_complete(f"{member_id} takes the place of {old.member_id}", moment)


def _join_known(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    roster, member_id = rebalance.roster, command.member_id
    if member_id in roster.pending and command.instance_id is None:
        rebalance.add(member_id, command, reply, moment)
        return
    error = roster.check(member_id, command.instance_id)
    if error is not ErrorCode.NONE:
        refuse(rebalance, reply, error, member_id)
        return
    member = roster.members[member_id]
    if _causes_rebalance(rebalance, member, command):
        rebalance.rejoin(member, command, reply)
        rebalance.prepare_or_complete(f"{member_id} rejoins: {command.reason}", moment)
    else:
        rebalance.start_session(member, moment)
        rebalance.services.answer(reply, rebalance.joined(member))


def _causes_rebalance(rebalance: Rebalance, member: Member, command: JoinGroup) -> bool:
    """Whether the join of a member begins a rebalance or is part of one.

    It does not when the member repeats its metadata, for then it has only missed the answer; but the leader of a stable
    group joins to begin a rebalance, for example when its topics have changed.
    """
    if rebalance.state is GroupState.PREPARING_REBALANCE or not member.matches(command.protocols):
        return True
    return rebalance.state is GroupState.STABLE and rebalance.roster.leader_id == member.member_id
