"""The two deadlines of each member: for its next heartbeat, and for revoking partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.groups.deadlines import Deadline, Deadlines

if TYPE_CHECKING:
    from ottla.groups.group import Group

SESSION: Final = "session"
REVOCATION: Final = "revocation"


class _Pair(NamedTuple):
    session: Deadline
    revocation: Deadline


class MemberDeadlines:
    """Not durable: after a restart every member has its full time again."""

    def __init__(self, group: Group, deadlines: Deadlines) -> None:
        self._group = group
        self._deadlines = deadlines
        self._pairs: dict[str, _Pair] = {}

    def __len__(self) -> int:
        """The count of members with deadlines."""
        return len(self._pairs)

    def arm_session(self, member_id: str, due_ms: int) -> None:
        self._deadlines.arm(self._pair(member_id).session, due_ms)

    def arm_revocation(self, member_id: str, due_ms: int) -> None:
        self._deadlines.arm(self._pair(member_id).revocation, due_ms)

    def forget(self, member_id: str) -> None:
        pair = self._pairs.pop(member_id, None)
        if pair is not None:
            pair.session.due_ms = pair.revocation.due_ms = None

    def forget_all(self) -> None:
        for member_id in list(self._pairs):
            self.forget(member_id)

    def _pair(self, member_id: str) -> _Pair:
        pair = self._pairs.get(member_id)
        if pair is None:
            session = Deadline(self._group, SESSION, member_id)
            pair = self._pairs[member_id] = _Pair(session, Deadline(self._group, REVOCATION, member_id))
        return pair
