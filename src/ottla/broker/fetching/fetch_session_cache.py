"""All fetch sessions, bounded in number and size, and which one is evicted when there is no room.  Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.net.limits import SESSION_PARTITIONS_MAX
from ottla.model.partition_state import ReplicaIncarnation
from ottla.runtime.steps import Steps, run_steps
from ottla.security.acl import ANONYMOUS

# A session that was unused for longer is evicted for any other; a younger one for none of its kind.  As Apache Kafka.
EVICTION_MS: Final = 120_000


class FetchSessionCache:
    """Sessions by id.  Times are monotonic.

    A new session takes the place of another when the cache is full: of the one that was unused for longest, if that is
    longer than `EVICTION_MS`; else of the least valuable one that is older than that: one that is not privileged
    (followers are) before one that is, the smaller before the larger, and never a more valuable one (KIP-227).
    """

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        *,
        tells_watermarks: bool = False,
        release: Callable[[Steps[None]], object] = run_steps,
    ) -> None:
        """`tells_watermarks`: to replicas that wait, as soon as they move.

        `release` runs the steps by which a closed session lets its partitions go.
        """
        self._release = release
        self._slots = slots
        self._new_id = new_id
        self._tells_watermarks = tells_watermarks
        # The one that was unused for longest comes first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # Sessions that may be evicted for others of their kind: they were old already when they were used last.
        self._evictable: dict[int, FetchSession] = {}
        self.partitions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def open(
        self,
        partitions_count: int,
        now_ms: int,
        *,
        is_privileged: bool = False,
        uses_topic_ids: bool = False,
        principal: str = ANONYMOUS,
        replica: ReplicaIncarnation | None = None,
    ) -> FetchSession | None:
        """A new empty session that will have so many partitions; None when there is no room for it."""
        if self._slots == 0 or self.partitions_count + partitions_count > SESSION_PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots:
            loser = self._loser(is_privileged, partitions_count, now_ms)
            if loser is None:
                return None
            self.remove(loser.id)
        session = FetchSession(
            self._free_id(),
            now_ms,
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
            principal=principal,
            replica=replica,
            tells_watermarks=self._tells_watermarks and replica is not None,
            cached_size=partitions_count,
        )
        self.partitions_count += partitions_count
        self._sessions[session.id] = session
        return session

    def touch(self, session: FetchSession, now_ms: int) -> bool:
        """The session was used or filled.  False: it became too large for the cache and was closed, or was before."""
        if session.is_closed:
            return False
        self.partitions_count += session.partitions_count - session.cached_size
        session.touch(now_ms)
        if self.partitions_count > SESSION_PARTITIONS_MAX:
            self.remove(session.id)
            return False
        self._sessions.move_to_end(session.id)
        if now_ms - session.created_ms > EVICTION_MS:
            self._evictable[session.id] = session
        return True

    def remove(self, session_id: int) -> None:
        """Close a session, if it is there."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._evictable.pop(session_id, None)
        self.partitions_count -= session.cached_size
        self._release(session.close())

    def _loser(self, is_privileged: bool, partitions_count: int, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        evictable = list(self._evictable.values())
        if is_privileged:
            evictable += [session for session in self._sessions.values() if not session.is_privileged]
        if not evictable:
            return None
        least = min(evictable, key=_value)
        # Of two that are equal the existing one stays: ids are above 0.
        return least if _value(least) < (is_privileged, partitions_count, 0) else None

    def _free_id(self) -> int:
        while True:
            session_id = self._new_id()
            if session_id > 0 and session_id not in self._sessions:
                return session_id


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, session.cached_size, session.id
