"""A member of a classic group, and all members of one: joined and pending ids, instance ids, the leader, protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from sys import getsizeof
from typing import Final

from ottla.groups.commands import JoinGroup, JoinProtocol
from ottla.groups.deadlines import Deadline
from ottla.groups.group_metadata import StoredMember
from ottla.groups.replies import DescribedMember, JoinReply, SyncReply
from ottla.groups.shared_bytes import (
    BARE_MEMBER_BYTES,
    SharedBytes,
    SharedPart,
    bytes_of_protocols,
    bytes_of_texts,
    network_of,
)
from ottla.model.error_code import ErrorCode


class Member:
    """A member's metadata and its parked requests.

    While one of its requests is parked, its session does not run (it cannot heartbeat); only a member that has not yet
    received its id is removed after `NEW_MEMBER_JOIN_TIMEOUT_MS`.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_synced",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
        "waiter",
    )

    def __init__(self, stored: StoredMember, protocols: Sequence[JoinProtocol], session: Deadline) -> None:
        self.member_id = stored.member_id
        self.instance_id = stored.instance_id
        self.take_over(stored)
        self.protocols: Sequence[JoinProtocol] = protocols
        self.session = session
        self.join_reply: Callable[[JoinReply], None] | None = None
        self.sync_reply: Callable[[SyncReply], None] | None = None
        # In the current generation.
        self.has_synced = True
        # Its first join has not been answered.
        self.is_new = False
        # The connection that sent its first join, while that is parked.
        self.waiter: object | None = None

    def take_over(self, stored: StoredMember) -> None:
        """The member's part of a logged generation, without its protocols."""
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.session_timeout_ms = stored.session_timeout_ms
        self.assignment = stored.assignment

    @property
    def is_waiting(self) -> bool:
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for this protocol; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def matches(self, protocols: Sequence[JoinProtocol]) -> bool:
        """The very same protocols, with the same metadata, in the same order of preference."""
        return len(self.protocols) == len(protocols) and all(
            mine == other for mine, other in zip(self.protocols, protocols, strict=True)
        )

    @property
    def network(self) -> str:
        return network_of(self.client_host)

    @property
    def held_bytes(self) -> int:
        """Its memory: metadata and assignment."""
        texts = bytes_of_texts((self.member_id, self.instance_id, self.client_id, self.client_host))
        return BARE_MEMBER_BYTES + texts + bytes_of_protocols(self.protocols) + getsizeof(self.assignment)

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its own protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def describe(self, protocol_name: str | None, *, is_stable: bool) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name) if is_stable else b"",
            self.assignment,
        )

    def stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )


def newcomer(member_id: str, command: JoinGroup) -> StoredMember:
    """A member as its JoinGroup describes it."""
    return StoredMember(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        b"",
        b"",
    )


class Roster:
    """Bookkeeping only: no state machine, no replies, no deadlines."""

    def __init__(self, member_bytes: SharedBytes) -> None:
        self.held: Final = SharedPart(member_bytes)
        self.members: Final[dict[str, Member]] = {}
        # Ids that were issued and are not used yet: see `IssuedMemberIds`.
        self.pending: Final[dict[str, Deadline]] = {}
        self.leader_id: str | None = None
        self._static_ids: Final[dict[str, str]] = {}
        self._protocol_counts: Final[Counter[str]] = Counter()
        self._joined_count = 0
        # New members by the connection that waits for the reply of their first join.
        self._new_by_waiter: Final[dict[object, Member]] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def joined_count(self) -> int:
        """Members whose JoinGroup is parked."""
        return self._joined_count

    @property
    def has_all_joined(self) -> bool:
        return self._joined_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_id(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self._static_ids.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member; FENCED_INSTANCE_ID when another process has taken its instance id."""
        if instance_id is not None:
            static_id = self._static_ids.get(instance_id)
            if static_id is not None and static_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self.held.add(member.held_bytes, member.network)
        if member.instance_id is not None:
            assert member.instance_id not in self._static_ids
            self._static_ids[member.instance_id] = member.member_id
        self._count_protocols(member.protocols, 1)
        self._joined_count += member.join_reply is not None
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> Member:
        """Returns the member, otherwise unchanged; when it was the leader, the next one becomes the leader."""
        member = self.members.pop(member_id)
        self.held.add(-member.held_bytes, member.network)
        member.session.due_ms = None
        self._count_protocols(member.protocols, -1)
        self._joined_count -= member.join_reply is not None
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def set_protocols(self, member: Member, protocols: Sequence[JoinProtocol]) -> None:
        before_bytes = member.held_bytes
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        self.held.add(member.held_bytes - before_bytes, member.network)

    def take_over(self, member: Member, stored: StoredMember) -> None:
        self.held.add(-member.held_bytes, member.network)
        member.take_over(stored)
        self.held.add(member.held_bytes, member.network)

    def clear(self) -> None:
        """The group is deleted: it has no members."""
        self.members.clear()
        self.leader_id = None
        self._static_ids.clear()
        self._protocol_counts.clear()
        self._joined_count = 0
        self._new_by_waiter.clear()
        self.held.release()

    def park_join(self, member: Member, reply: Callable[[JoinReply], None], waiter: object | None = None) -> None:
        self._joined_count += member.join_reply is None
        member.join_reply = reply
        if member.is_new and waiter is not None:
            member.waiter = waiter
            self._new_by_waiter[waiter] = member

    def take_join(self, member: Member) -> Callable[[JoinReply], None] | None:
        """Returns the reply of its parked JoinGroup, which is parked no longer."""
        reply = member.join_reply
        self._joined_count -= reply is not None
        member.join_reply = None
        if member.waiter is not None:
            self._new_by_waiter.pop(member.waiter, None)
            member.waiter = None
        return reply

    def new_member_of(self, waiter: object) -> Member | None:
        """The member without a generation whose parked join `waiter` sent."""
        return self._new_by_waiter.get(waiter)

    def add_pending(self, member_id: str, deadline: Deadline) -> None:
        assert member_id not in self.members
        self.pending[member_id] = deadline

    def forget_pending(self, member_id: str) -> bool:
        deadline = self.pending.pop(member_id, None)
        if deadline is None:
            return False
        deadline.due_ms = None
        return True

    def supports(self, protocols: Iterable[JoinProtocol]) -> bool:
        """Whether every member supports one of these protocols."""
        count = len(self.members)
        return any(self._protocol_counts[name] == count for name in _names(protocols))

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined; False when no member has."""
        if self.leader_id is not None and self.members[self.leader_id].join_reply is not None:
            return True
        joined = (member_id for member_id, member in self.members.items() if member.join_reply is not None)
        elected = next(joined, None)
        if elected is None:
            return False
        self.leader_id = elected
        return True

    def choose_protocol(self, replaced: Member | None = None, protocols: Sequence[JoinProtocol] = ()) -> str:
        """Of the protocols that all members support, the one with the most votes; of equals the one voted for first.

        With `replaced`, as if that member had `protocols`.
        """
        counts = Counter(self._protocol_counts)
        if replaced is not None:
            counts.subtract(_names(replaced.protocols))
            counts.update(_names(protocols))
        candidates = frozenset(name for name, count in counts.items() if count == len(self.members))
        votes: Counter[str] = Counter()
        for member in self.members.values():
            if member is replaced:
                votes[next(name for name, _ in protocols if name in candidates)] += 1
            else:
                votes[member.vote(candidates)] += 1
        return votes.most_common(1)[0][0]

    def assert_sound(self) -> None:
        """The invariants between any two commands; for tests, since it walks over all members."""
        members = self.members
        assert self._joined_count == sum(member.join_reply is not None for member in members.values())
        assert (self.leader_id in members) if members else self.leader_id is None
        assert self._static_ids == {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
        expected = Counter(name for member in members.values() for name in _names(member.protocols))
        assert self._protocol_counts == expected
        assert self.held.held_bytes == sum(member.held_bytes for member in members.values())
        assert not members.keys() & self.pending.keys()
        assert self._new_by_waiter == {m.waiter: m for m in members.values() if m.waiter is not None}
        assert all(member.is_new and member.join_reply is not None for member in self._new_by_waiter.values())

    def _count_protocols(self, protocols: Sequence[JoinProtocol], by: int) -> None:
        counts = self._protocol_counts
        for name in _names(protocols):
            counts[name] += by
            if not counts[name]:
                # Members may bring ever new names.
                del counts[name]


def _names(protocols: Iterable[JoinProtocol]) -> set[str]:
    """Each name once, even when the member repeats it."""
    return {name for name, _ in protocols}
