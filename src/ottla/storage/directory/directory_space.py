"""The room on a data directory's file system: looks at it, closes and opens the logs' rooms, has the reserve."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final

from ottla.model.identifiers import INTERNAL_TOPICS, TopicPartition
from ottla.model.limits import MIB
from ottla.observe.events import fields
from ottla.runtime.disk import Disk
from ottla.storage.directory.disk_space import DiskSpace, SpaceRules, SpaceState, Verdict
from ottla.storage.room import Room

RESERVE_FILE: Final = "reserve.bin"


class Reserve:
    """The file and its size.  `give_back` may be called from any thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """A file that is there counts with its size.  Raises `OSError`."""
        self._disk = disk
        self._path = f"{directory}/{RESERVE_FILE}"
        self._lock = threading.Lock()
        self.held_bytes = disk.file_size_bytes(self._path) if disk.exists(self._path) else 0

    def make(self, size_bytes: int) -> None:
        """Allocate it, with this size.  Raises `OSError`: then there is none."""
        with self._lock:
            try:
                if not size_bytes:
                    self._remove()
                    return
                file = self._disk.open(self._path, create=True)
                try:
                    if file.size_bytes() > size_bytes:
                        file.truncate(size_bytes)
                    # Also where the size is right: a copy of the directory may have made holes of it.
                    file.allocate(size_bytes)
                finally:
                    file.close()
                self.held_bytes = size_bytes
            except OSError:
                with contextlib.suppress(OSError):
                    self._remove()
                raise

    def give_back(self) -> bool:
        """Free its blocks; False when there were none.  Nothing is synced: after a crash it may be there again."""
        with self._lock:
            had_any = self.held_bytes > 0
            try:
                self._remove()
            except OSError:
                return False
            return had_any

    def _remove(self) -> None:
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
        self.held_bytes = 0


_log = logging.getLogger(__name__)

_LOW_HINT: Final = "lower retention, delete topics or make room before it is full: produces are refused then"
_FULL_HINT: Final = (
    "delete a topic (`ottla topic delete TOPIC`), shorten its retention (`ottla topic alter TOPIC --config "
    "retention.ms=3600000`) or make room: the files go after file.delete.delay.ms, and produces then resume"
)


class DirectorySpace:
    """`records` is the room of clients' and leaders' records, `own` that of the broker's own topics."""

    def __init__(self, disk: Disk, path: str, rules: SpaceRules | None = None) -> None:
        """The directory is locked.  Nothing is closed before the first check: nothing would open it again.

        Raises `OSError`.
        """
        self._disk = disk
        self._path = path
        self._space = DiskSpace(SpaceRules() if rules is None else rules)
        self._reserve = Reserve(disk, path)
        self._reported = SpaceState.AMPLE
        self._is_watched = False
        self._was_relieved = False
        self._is_blind = False
        # Whether every block of a reserve that was found is known to be allocated: a copy may have made holes of it.
        self._is_proven = False
        self._has_failed_to_make = False
        self.free_bytes = 0
        self.records: Final = Room()
        self.own: Final = Room()

    @property
    def rules(self) -> SpaceRules:
        return self._space.rules

    @property
    def is_full(self) -> bool:
        """Whether records are refused."""
        return self._space.is_full

    @property
    def is_long_full(self) -> bool:
        """Whether records have been refused for some seconds."""
        return self._space.is_long_full

    @property
    def is_low(self) -> bool:
        """Low or full."""
        return self._space.state is not SpaceState.AMPLE

    @property
    def reserve_bytes(self) -> int:
        """The bytes that the reserve holds now."""
        return self._reserve.held_bytes

    def room_of(self, topic_partition: TopicPartition) -> Room:
        return self.own if topic_partition.topic in INTERNAL_TOPICS else self.records

    def look(self, *, makes: bool = True) -> int:
        """Look at the file system and act on it; returns in how many milliseconds to look again.

        `makes`: whether a reserve may be made now.
        """
        self._is_watched = True
        was_long_full = self.is_long_full
        if self._was_relieved:
            self._was_relieved = False
            self.on_no_room()
        if self._see():
            verdict = self._space.on_look(self.free_bytes, self._reserve.held_bytes)
            self._act(verdict)
            if makes and (verdict.makes or not (self._is_proven or self.is_full)):
                self._make()
        else:
            # What `relieve` closed must not stay so for ever.
            self._set_rooms()
        if self.is_long_full and not was_long_full:
            _log.warning("disk.still_full", extra=fields(path=self._path, free_mib=self.free_bytes // MIB))
        return self._space.next_look_ms(self.free_bytes)

    def on_no_room(self) -> None:
        """A write failed for want of room."""
        if self._is_watched and self._see():
            self._act(self._space.on_no_room(self.free_bytes, self._reserve.held_bytes))

    def relieve(self) -> bool:
        """Something small and necessary met a full disk: give the reserve back.  Returns whether to try it again.

        May be called from any thread; records are refused from now on, and the next look does the rest.
        """
        if not self._is_watched:
            return False
        self._was_relieved = True
        self.records.close()
        return self._reserve.give_back()

    def _see(self) -> bool:
        try:
            self.free_bytes = self._disk.free_bytes(self._path)
        except OSError as error:
            # The free room is unknown: failed writes will show a lack of it.
            if not self._is_blind:
                _log.warning("disk.not_seen", extra=fields(path=self._path, error=str(error)))
            self._is_blind = True
            return False
        self._is_blind = False
        return True

    def _act(self, verdict: Verdict) -> None:
        # First: nothing that is given back may go to records.
        refused_count = self.records.refused_count
        self._set_rooms()
        self._report(refused_count)
        if verdict.gives_back and self._reserve.give_back() and self._see():
            self._space.on_look(self.free_bytes, self._reserve.held_bytes)
            self._set_rooms()

    def _set_rooms(self) -> None:
        for room, is_closed in ((self.records, self._space.is_full), (self.own, self._space.is_spent)):
            if is_closed:
                room.close()
            else:
                room.open()

    def _make(self) -> None:
        self._is_proven = True
        try:
            self._reserve.make(self.rules.reserve_bytes)
        except OSError as error:
            # Tried again at each look.
            if not self._has_failed_to_make:
                _log.warning("disk.reserve_not_made", extra=fields(path=self._path, error=str(error)))
            self._has_failed_to_make = True
        else:
            self._has_failed_to_make = False
            self._see()

    def _report(self, refused_count: int) -> None:
        """A line for each change: the end of a full and of a low disk is the same event."""
        before, state = self._reported, self._space.state
        if state is before:
            return
        self._reported = state
        facts: dict[str, object] = {"path": self._path, "free_mib": self.free_bytes // MIB}
        if state is SpaceState.FULL:
            _log.error("disk.full", extra=fields(**facts, hint=_FULL_HINT))
        elif before is SpaceState.FULL:
            facts |= {"refused_count": refused_count, "is_low": state is SpaceState.LOW}
            _log.warning("disk.room_returned", extra=fields(**facts))
        elif state is SpaceState.LOW:
            _log.warning("disk.low", extra=fields(**facts, hint=_LOW_HINT))
        else:
            _log.info("disk.room_returned", extra=fields(**facts))
