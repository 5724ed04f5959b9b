"""When a data directory's disk is low, when it is full, and what happens to the reserve then.  Pure.

The reserve is a file whose blocks are allocated, so that no produce can have them.  Room is looked at from time to
time; between two looks more may be written than was free, and then a write fails: `on_no_room`.  From either moment on

* records of clients and leaders are refused, so that nothing that is large is written any more;
* the reserve is given back as soon as less than `kept_bytes` is free without it.  The tree, checkpoints, deletions and
  committed offsets live from it; committed offsets stop before its last quarter, from which a broker can still be
  started and topics deleted.

Records are taken again when `resume_bytes` are free beside a whole reserve.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ottla.model.limits import MIB

# Produces are refused below this free space, or below a sixteenth of a small file system.  What is written between two
# looks stays below it: one event loop appends less than 1 GiB in a second, and looks are 50 ms apart when twice as
# much is left.
REFUSE_BELOW_BYTES: Final = 64 * MIB
BYTES_PER_MS_MAX: Final = 1024 * 1024 * 1024 // 1000
LOOK_EVERY_MS_MIN: Final = 50
LOOK_EVERY_MS_MAX: Final = 1_000
LOOK_WHEN_FULL_MS: Final = 500
# A disk that was full for so many looks, 5 s, is long full: as long as a flush may take before the disk is stuck.
LONG_FULL_LOOKS: Final = 10
# The most of a file system that is held back: as the reserve, and as free space below which produces are refused.
_SHARE_HELD_BACK: Final = 16
_SHARE_LOW: Final = 10
# A quota, or a disk without inodes, has no room although bytes are free: produces are tried again after so many looks,
# at first, and twice as many each time.
_HOLD_LOOKS_MIN: Final = 2
_HOLD_LOOKS_MAX: Final = 64
# Looks without a failed write after which the next one counts as the first.
_CALM_LOOKS: Final = 120


class SpaceRules(NamedTuple):
    """Sizes in bytes; with all of them 0 only writes that fail count."""

    reserve_bytes: int = 0
    low_bytes: int = 0
    refuse_below_bytes: int = 0

    @classmethod
    def of_volume(cls, total_bytes: int, reserve_bytes: int, low_bytes: int) -> SpaceRules:
        """The settings' sizes, and no more than a small file system can spare."""
        held_back_max = total_bytes // _SHARE_HELD_BACK
        refuse_below_bytes = min(REFUSE_BELOW_BYTES, held_back_max)
        low_bytes = min(low_bytes, total_bytes // _SHARE_LOW)
        if low_bytes:
            low_bytes = max(low_bytes, _resume_bytes(refuse_below_bytes))
        return cls(min(reserve_bytes, held_back_max), low_bytes, refuse_below_bytes)

    @property
    def kept_bytes(self) -> int:
        """Room below it is only for the tree, checkpoints, deletions and a start."""
        return self.reserve_bytes // 4

    @property
    def resume_bytes(self) -> int:
        return _resume_bytes(self.refuse_below_bytes)


def _resume_bytes(refuse_below_bytes: int) -> int:
    """Above the limit, so that produces are not refused and taken again for each segment that comes and goes."""
    return refuse_below_bytes * 3 // 2


class SpaceState(enum.Enum):
    AMPLE = "ample"
    LOW = "low"
    FULL = "full"


class Verdict(NamedTuple):
    """The action on the reserve after a check, or after a write that failed."""

    # Remove the reserve, then look again.
    gives_back: bool = False
    # Make the reserve whole.
    makes: bool = False


class DiskSpace:
    """The state of one file system.  It starts as ample, before the first look."""

    def __init__(self, rules: SpaceRules) -> None:
        self.rules = rules
        self.state = SpaceState.AMPLE
        # Whether committed offsets are refused too.
        self.is_spent = False
        # One after the other that saw the disk full.
        self._full_looks = 0
        self._hold_looks = 0
        self._next_hold_looks = _HOLD_LOOKS_MIN
        self._calm_looks = 0

    @property
    def is_full(self) -> bool:
        return self.state is SpaceState.FULL

    @property
    def is_long_full(self) -> bool:
        """Whether records have been refused for some seconds: other replicas should do without this disk."""
        return self._full_looks >= LONG_FULL_LOOKS

    def on_look(self, free_bytes: int, held_bytes: int) -> Verdict:
        """`free_bytes` may be written by this process, and `held_bytes` are allocated to the reserve."""
        verdict = self._look(free_bytes, held_bytes)
        self._full_looks = self._full_looks + 1 if self.is_full else 0
        return verdict

    def _look(self, free_bytes: int, held_bytes: int) -> Verdict:
        rules = self.rules
        beside_bytes = self._beside_bytes(free_bytes, held_bytes)
        if self._calm_looks < _CALM_LOOKS:
            self._calm_looks += 1
        else:
            self._next_hold_looks = _HOLD_LOOKS_MIN
        if self._hold_looks:
            self._hold_looks -= 1
        if self.is_full:
            self.is_spent = not held_bytes and free_bytes < rules.kept_bytes
            if self._hold_looks or beside_bytes < rules.resume_bytes:
                return Verdict(gives_back=held_bytes > 0 and free_bytes < rules.kept_bytes)
            self.is_spent = False
            return self._begin(self._state_of(beside_bytes), makes=held_bytes < rules.reserve_bytes)
        if beside_bytes < rules.refuse_below_bytes:
            return self._begin_full(free_bytes, held_bytes)
        makes = held_bytes < rules.reserve_bytes and beside_bytes >= rules.refuse_below_bytes
        if self.state is SpaceState.LOW and beside_bytes < rules.low_bytes * 5 // 4:
            return Verdict(makes=makes)
        return self._begin(self._state_of(beside_bytes), makes=makes)

    def on_no_room(self, free_bytes: int, held_bytes: int) -> Verdict:
        """A write failed for want of room."""
        self._calm_looks = 0
        # Where the free bytes show the lack of room, they will also show its return.
        is_unseen = self._beside_bytes(free_bytes, held_bytes) >= self.rules.resume_bytes
        if not self.is_full:
            if is_unseen:
                self._hold_looks = self._next_hold_looks
                self._next_hold_looks = min(2 * self._next_hold_looks, _HOLD_LOOKS_MAX)
            return self._begin_full(free_bytes, held_bytes)
        if is_unseen:
            self._hold_looks = max(self._hold_looks, _HOLD_LOOKS_MIN)
        return Verdict(gives_back=held_bytes > 0 and free_bytes < self.rules.kept_bytes)

    def next_look_ms(self, free_bytes: int) -> int:
        """In how much time to look again."""
        if self.is_full:
            return LOOK_WHEN_FULL_MS
        spare_bytes = free_bytes - self.rules.refuse_below_bytes
        return min(max(spare_bytes // BYTES_PER_MS_MAX, LOOK_EVERY_MS_MIN), LOOK_EVERY_MS_MAX)

    def _beside_bytes(self, free_bytes: int, held_bytes: int) -> int:
        """What would be free beside a whole reserve."""
        return free_bytes - max(self.rules.reserve_bytes - held_bytes, 0)

    def _begin_full(self, free_bytes: int, held_bytes: int) -> Verdict:
        kept_bytes = self.rules.kept_bytes
        self.is_spent = not held_bytes and free_bytes < kept_bytes
        return self._begin(SpaceState.FULL, gives_back=held_bytes > 0 and free_bytes < kept_bytes)

    def _begin(self, state: SpaceState, *, gives_back: bool = False, makes: bool = False) -> Verdict:
        self.state = state
        return Verdict(gives_back, makes)

    def _state_of(self, beside_bytes: int) -> SpaceState:
        return SpaceState.LOW if beside_bytes < self.rules.low_bytes else SpaceState.AMPLE
