"""The shard's services that a group uses while it decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ottla.groups.deadlines import Deadline, Deadlines
from ottla.groups.decision import Moment
from ottla.groups.group_log import GroupRecord
from ottla.groups.settings import GroupSettings
from ottla.groups.shared_bytes import SharedBytes
from ottla.model.error_code import ErrorCode

# A client that never returns costs an id, and possibly a group made for it alone, for the session time-out that it
# requested: up to half an hour.  So an id expires after the shard has issued this many others; a client that joins with
# an expired one gets UNKNOWN_MEMBER_ID, and requests another.
ISSUED_IDS_MAX: Final = 10_000


class IssuedMemberIds:
    """The newest ids, used ones included, by the deadlines that end them."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines: Final = deadlines
        self._newest: Final[deque[Deadline]] = deque()

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, deadline: Deadline, lasts_ms: int, moment: Moment) -> None:
        """An id was issued: `deadline` passes after `lasts_ms`, or when too many others were issued."""
        self._deadlines.arm(deadline, moment.monotonic_ms + lasts_ms)
        self._newest.append(deadline)
        if len(self._newest) > ISSUED_IDS_MAX:
            oldest = self._newest.popleft()
            if oldest.due_ms is not None:
                self._deadlines.arm(oldest, moment.monotonic_ms)

    def clear(self) -> None:
        self._newest.clear()


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
