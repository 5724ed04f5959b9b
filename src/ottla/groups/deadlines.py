"""One heap of deadlines for all groups of a shard.

Moving a deadline later (each heartbeat moves its session) costs one store: its entry in the heap stays and is pushed
again when it comes up too early.  So the heap holds at most a few entries for each deadline, and no timer object is
ever made or cancelled.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from ottla.groups.group_log import Decision
from ottla.runtime.clock import Moment


class DeadlineOwner(Protocol):
    """The group that a deadline belongs to, as far as deadlines know it."""

    @property
    def group_id(self) -> str: ...

    def on_deadline(self, deadline: Deadline, moment: Moment) -> Decision | None:
        """A deadline of this group has passed (and is disarmed).  Returns the records to append, or None.

        When the log refuses the records, the shard calls `on_append_failed`.
        """
        ...

    def on_append_failed(self, deadline: Deadline, moment: Moment) -> None:
        """The records of `on_deadline` could not be appended: nothing has changed, so arm a later try."""
        ...


class Deadline:
    """A moment by which something must have happened to `group`; the group alone reads `kind` and `member_id`.

    `due_ms` (monotonic) is None while disarmed.  To move a deadline later, or to disarm it, set `due_ms`; to arm it,
    or when it may move nearer, use `Deadlines.arm`.
    """

    __slots__ = ("due_ms", "group", "kind", "member_id", "queued_ms")

    def __init__(self, group: DeadlineOwner, kind: str, member_id: str = "") -> None:
        self.group: Final = group
        self.kind: Final = kind
        self.member_id: Final = member_id
        self.due_ms: int | None = None
        # The place of its newest entry in the heap.
        self.queued_ms: int | None = None


# Below this many entries the heap is not swept.
SWEPT_COUNT_MIN: Final = 4_096


class Deadlines:
    def __init__(self) -> None:
        self._heap: Final[list[tuple[int, int, Deadline]]] = []
        # At this many entries stale ones are swept out: a flood of short-lived members would leave theirs for the
        # length of a session, which they choose.
        self._sweep_count = SWEPT_COUNT_MIN
        self._pushed_count = 0

    @property
    def queued_count(self) -> int:
        """Entries of the heap, stale ones included."""
        return len(self._heap)

    def arm(self, deadline: Deadline, due_ms: int) -> None:
        deadline.due_ms = due_ms
        if deadline.queued_ms is None or due_ms < deadline.queued_ms:
            self._push(deadline, due_ms)

    def next_due_ms(self) -> int | None:
        """The time of the next check; may be too early for a deadline that was moved later, never too late."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Deadline | None:
        """The next deadline that has passed, disarmed; None when there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, deadline = heappop(heap)
            if deadline.queued_ms != queued_ms:
                continue  # it was armed earlier: that entry replaced this one
            deadline.queued_ms = None
            if deadline.due_ms is None:
                continue
            if deadline.due_ms <= now_ms:
                deadline.due_ms = None
                return deadline
            self._push(deadline, deadline.due_ms)
        return None

    def clear(self) -> None:
        """Disarm all deadlines: their groups are gone."""
        for _, _, deadline in self._heap:
            deadline.due_ms = deadline.queued_ms = None
        self._heap.clear()

    def _push(self, deadline: Deadline, due_ms: int) -> None:
        # The count keeps entries of one moment in their order, and the heap from comparing deadlines.
        self._pushed_count += 1
        deadline.queued_ms = due_ms
        heappush(self._heap, (due_ms, self._pushed_count, deadline))
        if len(self._heap) >= self._sweep_count:
            self._sweep()

    def _sweep(self) -> None:
        """Constant time for each push, since as many must be pushed again before the next sweep as this one keeps."""
        kept = []
        for entry in self._heap:
            deadline = entry[2]
            if deadline.queued_ms != entry[0]:
                continue
            if deadline.due_ms is None:
                deadline.queued_ms = None
            else:
                kept.append(entry)
        self._heap[:] = kept
        heapify(self._heap)
        self._sweep_count = max(SWEPT_COUNT_MIN, 2 * len(kept))
