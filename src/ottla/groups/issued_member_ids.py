"""Member ids that were issued and are not used yet: bounded over all groups of a shard."""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.groups.deadlines import Deadline, Deadlines
from ottla.groups.moment import Moment

# A client that never returns costs an id, and possibly a group made for it alone, for the session time-out that it
# requested: up to half an hour.  So an id expires after the shard has issued this many others; a client that joins with
# an expired one gets UNKNOWN_MEMBER_ID, and asks for another.
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
