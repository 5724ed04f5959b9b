"""What a group may ask of its shard while it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.groups.deadlines import Deadlines
from ottla.groups.given_ids import GivenIds
from ottla.groups.group_log import GroupRecord
from ottla.groups.member_bytes import MemberBytes
from ottla.groups.moment import Moment
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode


class Ledger(Protocol):
    """Writes before anything durable changes, and lets answers out only when what they tell is stable."""

    @property
    def settings(self) -> GroupSettings: ...

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def given_ids(self) -> GivenIds: ...

    @property
    def member_bytes(self) -> MemberBytes: ...

    def new_member_id(self, prefix: str) -> str:
        """A member id that nobody has: `prefix`, a hyphen, something random."""
        ...

    def write(self, records: Sequence[GroupRecord], moment: Moment) -> ErrorCode:
        """Append `records` as one batch and replay them.  When this is not NONE, nothing was appended or changed."""
        ...

    # Replies of different types pass through here: see `commands` for which is whose.
    def answer(self, reply: Callable[[Any], None], value: object) -> None:
        """Call `reply(value)` when everything that was written before is stable."""
        ...
