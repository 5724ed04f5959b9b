"""Member ids that were given out and are not used yet: bounded over all groups of a shard."""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.groups.deadlines import Deadline, Deadlines
from ottla.groups.moment import Moment

# A client that never comes back costs an id, and maybe a group made for it alone, for as long as the session that it
# asked for: up to half an hour.  So an id is good while the shard gave out no more than these after it; who comes with
# an older one gets UNKNOWN_MEMBER_ID, and asks again.
GIVEN_IDS_MAX: Final = 10_000


class GivenIds:
    """The newest ids, used ones with them, by the deadlines that end them."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines: Final = deadlines
        self._newest: Final[deque[Deadline]] = deque()

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, deadline: Deadline, lasts_ms: int, moment: Moment) -> None:
        """An id was given out: `deadline` passes after `lasts_ms`, or when too many others were given out."""
        self._deadlines.arm(deadline, moment.monotonic_ms + lasts_ms)
        self._newest.append(deadline)
        if len(self._newest) > GIVEN_IDS_MAX:
            oldest = self._newest.popleft()
            if oldest.due_ms is not None:
                self._deadlines.arm(oldest, moment.monotonic_ms)

    def clear(self) -> None:
        self._newest.clear()
