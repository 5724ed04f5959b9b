"""The shard's services that a group uses while it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.groups.deadlines import Deadlines
from ottla.groups.group_log import GroupRecord
from ottla.groups.issued_member_ids import IssuedMemberIds
from ottla.groups.moment import Moment
from ottla.groups.settings import GroupSettings
from ottla.groups.shared_bytes import SharedBytes
from ottla.model.error_code import ErrorCode


class ShardServices(Protocol):
    """Appends before anything durable changes, and releases answers only when the state they reveal is stable."""

    @property
    def settings(self) -> GroupSettings: ...

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def issued_ids(self) -> IssuedMemberIds: ...

    @property
    def member_bytes(self) -> SharedBytes: ...

    def new_member_id(self, prefix: str) -> str:
        """A new member id: `prefix`, a hyphen, a random part."""
        ...

    def write(self, records: Sequence[GroupRecord], moment: Moment) -> ErrorCode:
        """Append `records` as one batch and replay them.  When this is not NONE, nothing was appended or changed."""
        ...

    # Replies of different types pass through here: see `commands` for the type of each.
    def answer(self, reply: Callable[[Any], None], value: object) -> None:
        """Call `reply(value)` when everything that was appended before is stable."""
        ...
