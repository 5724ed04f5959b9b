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


class GroupClient(Protocol):
    """What a library does for a member."""

    def commit(self, partition: int, offset: int) -> Outcome: ...

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        """The committed offsets, -1 for none; None when they could not be asked."""
        ...

    def high_watermark(self, partition: int) -> int | None:
        """As the broker told it last."""
        ...

    def generation(self) -> int:
        """The generation of the present assignment; -1 when the library does not tell."""
        ...


class Member:
    """Writes down the calls of one member; every call comes from the member's own thread."""

    def __init__(self, name: str, client: GroupClient, recorder: Recorder) -> None:
        self._name = name
        self._client = client
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
            high_watermark = self._client.high_watermark(partition)
            if high_watermark is not None:
                self._recorder.add(Watermark(self._name, invoked_ns, now_ns(), partition, high_watermark))

    def commit_sometimes(self) -> None:
        if self._random.random() < COMMIT_SHARE:
            self.commit(list(self._next))

    def commit(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            offset = self._next.get(partition)
            if offset is None:
                continue
            invoked_ns = now_ns()
            outcome = self._client.commit(partition, offset)
            self._recorder.add(Commit(self._name, invoked_ns, now_ns(), outcome, partition, offset))

    def given(self, partitions: Iterable[int]) -> None:
        """Called within a poll, when the group's coordinator has given these partitions to this member."""
        self.end_poll()
        wanted = list(partitions)
        generation = self._client.generation()
        for partition in wanted:
            self._recorder.add(Positioned(self._name, now_ns(), partition, generation))
        self._owned.update(wanted)

    def read_committed(self, partitions: Iterable[int]) -> None:
        """Ask what is committed for partitions that were just given."""
        wanted = [partition for partition in partitions if partition in self._owned]
        invoked_ns = now_ns()
        for partition, offset in (self._client.committed(wanted) or {}).items():
            self._recorder.add(Committed(self._name, invoked_ns, now_ns(), partition, offset))

    def taken(self, partitions: Iterable[int]) -> None:
        """These partitions are to be given up: what was read of them is committed first."""
        self.end_poll()
        wanted = list(partitions)
        self.commit(wanted)
        self.lost(wanted)

    def lost(self, partitions: Iterable[int]) -> None:
        """These partitions are another member's already, perhaps."""
        self.end_poll()
        for partition in partitions:
            self._recorder.add(Revoked(self._name, now_ns(), partition))
            self._owned.discard(partition)
            self._next.pop(partition, None)
