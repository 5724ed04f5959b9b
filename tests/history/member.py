"""A member of a group as the checker sees it: what it was given, read, committed and gave up, whatever its library."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from tests.history.operations import Commit, Committed, Outcome, Poll, Positioned, Revoked, Watermark
from tests.history.recorder import Recorder, now_ns

RECORDS_PER_POLL_MAX: Final = 500
COMMIT_SHARE: Final = 0.5


class KnownToClient(Protocol):
    """What a library knows without asking."""

    def high_watermark(self, partition: int) -> int | None:
        """As the broker told it last."""
        ...

    def generation(self) -> int:
        """The generation of the present assignment; -1 when the library does not tell."""
        ...


class GroupClient(KnownToClient, Protocol):
    """What a library does for a member, which waits for it."""

    def commit(self, partition: int, offset: int) -> Outcome: ...

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        """The committed offsets, -1 for none; None when they could not be asked."""
        ...


class RecordedMember:
    """Writes down what one member is given and does; every call comes from the member's own thread."""

    def __init__(self, name: str, known: KnownToClient, recorder: Recorder) -> None:
        self._name = name
        self._known = known
        self._recorder = recorder
        self._random = random.Random(name)
        self._owned: set[int] = set()
        # What a commit would say: the offset behind what was read.
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
        """Write down what was read since `begin_poll`."""
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
        """The partitions that were read since they were given, or none: this member commits now and then."""
        return list(self._next) if self._random.random() < COMMIT_SHARE else []

    def next_offset(self, partition: int) -> int | None:
        """What a commit would say; None when nothing of the partition was read since it was given."""
        return self._next.get(partition)

    def begin_commit(self, partition: int, offset: int) -> int:
        """A commit is about to be sent, at the time that is returned."""
        invoked_ns = now_ns()
        # Before it is sent: of a killed member nobody else could tell what it had begun to commit.
        self._recorder.add(Commit(self._name, invoked_ns, invoked_ns, Outcome.UNKNOWN, partition, offset))
        return invoked_ns

    def tried_commit(self, invoked_ns: int, outcome: Outcome, partition: int, offset: int) -> None:
        self._recorder.add(Commit(self._name, invoked_ns, now_ns(), outcome, partition, offset))

    def told_committed(self, invoked_ns: int, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._recorder.add(Committed(self._name, invoked_ns, now_ns(), partition, offset))

    def given(self, partitions: Iterable[int]) -> None:
        """Called within a poll, when the group's coordinator has given these partitions to this member."""
        self.end_poll()
        wanted = list(partitions)
        generation = self._known.generation()
        for partition in wanted:
            self._recorder.add(Positioned(self._name, now_ns(), partition, generation))
        self._owned.update(wanted)

    def lost(self, partitions: Iterable[int]) -> None:
        """These partitions are another member's already, perhaps."""
        self.end_poll()
        for partition in partitions:
            self._recorder.add(Revoked(self._name, now_ns(), partition))
            self._owned.discard(partition)
            self._next.pop(partition, None)


class Member(RecordedMember):
    """A member whose library answers before it returns."""

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
        """Ask what is committed for partitions that were just given."""
        wanted = [partition for partition in partitions if partition in self.owned]
        invoked_ns = now_ns()
        self.told_committed(invoked_ns, self._client.committed(wanted) or {})

    def taken(self, partitions: Iterable[int]) -> None:
        """These partitions are to be given up: what was read of them is committed first."""
        self.end_poll()
        wanted = list(partitions)
        self.commit(wanted)
        self.lost(wanted)
