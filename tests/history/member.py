"""A member of a group as the checker sees it: its assignments, reads, commits and releases, with any library."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tests.history.operations import Commit, Committed, Outcome, Poll, Positioned, Revoked, Watermark
from tests.history.recorder import Recorder, now_ns

RECORDS_PER_POLL_MAX: Final = 500
COMMIT_SHARE: Final = 0.5


class KnownToClient(Protocol):
    """Facts that a library knows without a request."""

    def high_watermark(self, partition: int) -> int | None:
        """As in the last response of the broker."""
        ...

    def generation(self) -> int:
        """The generation of the current assignment; -1 when the library does not expose it."""
        ...


class CommitResult(NamedTuple):
    """`error` is the library's, where the outcome is UNKNOWN."""

    outcome: Outcome
    error: str = ""


class GroupClient(KnownToClient, Protocol):
    """Requests that a library sends for a member, which waits for the response."""

    def commit(self, partition: int, offset: int) -> CommitResult: ...

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        """The committed offsets, -1 for none; None when the request failed."""
        ...


class RecordedMember:
    """Records the assignments and operations of one member; every call comes from the member's own thread."""

    def __init__(self, name: str, known: KnownToClient, recorder: Recorder) -> None:
        self._name = name
        self._known = known
        self._recorder = recorder
        self._random = random.Random(name)
        self._owned: set[int] = set()
        # The offset of the next commit: one past the last record read.
        self._next: dict[int, int] = {}
        self._invoked_ns = now_ns()
        self._unread: dict[int, list[tuple[int, str]]] = defaultdict(list)

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._owned)

    def begin_poll(self) -> None:
        self._invoked_ns = now_ns()

    def got(self, partition: int, offset: int, value: bytes) -> None:
        """A record, within a poll."""
        self._unread[partition].append((offset, value.decode()))

    def end_poll(self) -> None:
        """Record the records read since `begin_poll`."""
        read, self._unread = self._unread, defaultdict(list)
        completed_ns = now_ns()
        for partition, records in read.items():
            self._recorder.add(Poll(self._name, self._invoked_ns, completed_ns, partition, tuple(records)))
            if partition in self._owned:
                self._next[partition] = records[-1][0] + 1
            invoked_ns = now_ns()
            high_watermark = self._known.high_watermark(partition)
            if high_watermark is not None:
                self._recorder.add(Watermark(self._name, invoked_ns, now_ns(), partition, high_watermark))

    def to_commit_now(self) -> list[int]:
        """The partitions that were read since their assignment, or none: this member commits at random."""
        return list(self._next) if self._random.random() < COMMIT_SHARE else []

    def next_offset(self, partition: int) -> int | None:
        """The offset of the next commit; None when nothing of the partition was read since its assignment."""
        return self._next.get(partition)

    def begin_commit(self, partition: int, offset: int) -> int:
        """A commit will be sent now, at the returned time."""
        invoked_ns = now_ns()
        # Before it is sent: otherwise a started commit of a killed member would be unknown.
        self._recorder.add(Commit(self._name, invoked_ns, invoked_ns, Outcome.UNKNOWN, partition, offset))
        return invoked_ns

    def tried_commit(self, invoked_ns: int, result: CommitResult, partition: int, offset: int) -> None:
        self._recorder.add(Commit(self._name, invoked_ns, now_ns(), result.outcome, partition, offset, result.error))

    def told_committed(self, invoked_ns: int, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._recorder.add(Committed(self._name, invoked_ns, now_ns(), partition, offset))

    def given(self, partitions: Iterable[int]) -> None:
        """Called within a poll, when the group's coordinator has assigned these partitions to this member."""
        self.end_poll()
        wanted = list(partitions)
        generation = self._known.generation()
        for partition in wanted:
            self._recorder.add(Positioned(self._name, now_ns(), partition, generation))
        self._owned.update(wanted)

    def lost(self, partitions: Iterable[int]) -> None:
        """Another member may already have these partitions."""
        self.end_poll()
        for partition in partitions:
            self._recorder.add(Revoked(self._name, now_ns(), partition))
            self._owned.discard(partition)
            self._next.pop(partition, None)


class Member(RecordedMember):
    """A member whose library is synchronous."""

    def __init__(self, name: str, client: GroupClient, recorder: Recorder) -> None:
        super().__init__(name, client, recorder)
        self._client = client

    def commit_sometimes(self) -> None:
        self.commit(self.to_commit_now())

    def commit(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            offset = self.next_offset(partition)
            if offset is not None:
                invoked_ns = self.begin_commit(partition, offset)
                self.tried_commit(invoked_ns, self._client.commit(partition, offset), partition, offset)

    def read_committed(self, partitions: Iterable[int]) -> None:
        """Query the committed offsets of partitions that were just assigned."""
        wanted = [partition for partition in partitions if partition in self.owned]
        invoked_ns = now_ns()
        self.told_committed(invoked_ns, self._client.committed(wanted) or {})

    def taken(self, partitions: Iterable[int]) -> None:
        """These partitions will be released: commit their read records first."""
        self.end_poll()
        wanted = list(partitions)
        self.commit(wanted)
        self.lost(wanted)
