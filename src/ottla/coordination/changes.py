"""One node that every writer updates, so that one watch reports every change.

A watch in ZooKeeper covers one node and fires once; 10,000 partitions would need 10,000.  So each change that others
cache goes through `Changes.commit`, which sets `/changes` in the same `multi`.  Its version counts the changes, its
data is a ring: the subjects of the last few hundred.  A reader re-reads the subjects of the changes that it missed, and
everything when it missed more than the ring holds.

Every commit replaces exactly the version that it read, so the last item of the ring is that of the node's version, the
one before it that of the version before, and none is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from ottla.coordination.layout import CHANGES
from ottla.coordination.node_json import Fields, NodeDamaged
from ottla.coordination.tree import (
    BATCH_BYTES_MAX,
    ConnectionLoss,
    Operation,
    SetNode,
    StandingWatch,
    Stat,
    Tree,
    TreeError,
    request_bytes,
)
from ottla.model.errors import OttlaError
from ottla.runtime.mutex import Mutex

# Each commit writes the whole ring: it is small as a rule (300 changes of one topic: 12 KB), and has room for an
# election of 2,000 partitions of as many topics (70 KB).
RING_CHANGES_MAX: Final = 300
RING_BYTES_MAX: Final = 96 * 1024
CHANGE_BYTES_MAX: Final = 24 * 1024  # a change of longer subjects has none, and readers re-read everything

PARTITIONS_MAX: Final = 1_000_000  # of one topic: a damaged node must not make a set of any size

_FORMAT: Final = 2
_STATES: Final = "states/"
_ASSIGNMENTS: Final = "assignments/"

_STRINGS: Final = frozenset({str})

Subjects = tuple[str, ...]


class Mark(NamedTuple):
    """A point in the sequence of changes: its number, and the subjects of the last ones (None: all), oldest first."""

    version: int
    ring: tuple[Subjects | None, ...]


class _Tip(NamedTuple):
    """The state of `/changes` that the next commit replaces; `items` are the ring's, encoded."""

    version: int
    items: tuple[bytes, ...]


class _Commit:
    """A caller's operations, and their results or error when they are done."""

    __slots__ = ("error", "operations", "results", "subjects")

    def __init__(self, operations: Sequence[Operation], subjects: Sequence[str]) -> None:
        self.operations: Final = operations
        self.subjects: Final = subjects
        self.results: list[Stat | None] | None = None
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.results is not None or self.error is not None


class Changes:
    """The writer's side.

    One request is under way at a time: a second one would have to count on the version that the first one gives, and
    could meet that version from another writer, whose subjects it would then drop.  Commits that wait meanwhile share
    the next request.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._tip: _Tip | None = None
        self._committing = Mutex()
        self._waiting: list[_Commit] = []

    async def commit(self, operations: Sequence[Operation], subjects: Sequence[str]) -> list[Stat | None]:
        """Apply all operations or none, and notify every follower.  Subjects are like `topics/orders`.

        Raises what `Tree.multi` raises; `operation_index` counts in `operations`.
        """
        commit = _Commit(operations, subjects)
        self._waiting.append(commit)
        try:
            async with self._committing:
                while not commit.is_done:
                    try:
                        await self._commit_waiting()
                    finally:
                        self._waiting = [waiting for waiting in self._waiting if not waiting.is_done]
        finally:
            if not commit.is_done:  # cancelled, or `/changes` cannot be read
                self._waiting.remove(commit)
        if commit.error is not None:
            raise commit.error
        assert commit.results is not None
        return commit.results

    async def _commit_waiting(self) -> None:
        """Commit in one request what waits and fits; one that fails leaves the others to the next call."""
        tip = await self._current_tip()
        batch = self._next_batch()
        self._tip = None  # unknown until the answer is there
        subjects = dict.fromkeys(chain.from_iterable(commit.subjects for commit in batch))
        items = _pruned((*tip.items, _encode_subjects(list(subjects))))
        touch = SetNode(CHANGES, _encode_ring(items), tip.version)
        try:
            results = await self._tree.multi([*chain.from_iterable(commit.operations for commit in batch), touch])
        except (OttlaError, ValueError) as error:
            if not _fail(batch, error):
                await self._tree.sync()  # another writer of `/changes` was faster: read its entry
            return
        except BaseException:
            # The caller that sends for all is cancelled: the others cannot know what became of theirs.
            for commit in batch:
                commit.error = ConnectionLoss(CHANGES)
            raise
        self._tip = _Tip(tip.version + 1, items)
        first = 0
        for commit in batch:
            commit.results = results[first : first + len(commit.operations)]
            first += len(commit.operations)

    def _next_batch(self) -> list[_Commit]:
        batch = self._waiting[:1]
        size = request_bytes(batch[0].operations)
        subjects_size = len(_encode_subjects(batch[0].subjects))
        for commit in self._waiting[1:]:
            size += request_bytes(commit.operations)
            subjects_size += len(_encode_subjects(commit.subjects))
            if size > BATCH_BYTES_MAX or subjects_size > CHANGE_BYTES_MAX:
                break
            batch.append(commit)
        return batch

    async def _current_tip(self) -> _Tip:
        if self._tip is None:
            node = await self._tree.get(CHANGES)
            ring = _decode_ring(node.data)
            items = tuple(b"null" if subjects is None else _encode_subjects(subjects) for subjects in ring)
            self._tip = _Tip(node.stat.version, items)
        return self._tip


class ChangeFollower:
    """One reader's position in the sequence of changes, and its watch.

    `on_stale` is called on the event loop when the reader should `look` again; at most once for each look.
    """

    def __init__(self, tree: Tree, on_stale: Callable[[], None] | None) -> None:
        self._tree = tree
        self._watch = StandingWatch(on_stale)
        self._seen_version: int | None = None

    async def look(self) -> Mark:
        """The tree's current mark."""
        node = await self._watch.read(lambda watch: self._tree.get(CHANGES, watch=watch))
        return Mark(node.stat.version, _decode_ring(node.data))

    def missed(self, mark: Mark) -> Subjects | None:
        """The subjects to re-read between the last settled mark and this one; None is everything."""
        if self._seen_version is None:
            return None
        count = mark.version - self._seen_version
        if not 0 <= count <= len(mark.ring):
            return None
        found: dict[str, None] = {}
        for subjects in mark.ring[len(mark.ring) - count :]:
            if subjects is None:
                return None
            found.update(dict.fromkeys(subjects))
        return tuple(found)

    async def has_moved(self, mark: Mark) -> bool:
        """Whether there are changes after this mark."""
        stat = await self._tree.exists(CHANGES)
        return stat is None or stat.version != mark.version

    def settle(self, mark: Mark) -> None:
        """Everything up to this mark has been read; without this call `missed` reports it again."""
        self._seen_version = mark.version


def states_subject(topic: str, indexes: Iterable[int]) -> str:
    """The states of some partitions of a topic, like `states/orders:0-4,7`."""
    return _partitions_subject(_STATES, topic, indexes)


def assignments_subject(topic: str, indexes: Iterable[int]) -> str:
    """The replicas of some partitions of a topic, and their states."""
    return _partitions_subject(_ASSIGNMENTS, topic, indexes)


def changed_states(subject: str) -> tuple[str, set[int]] | None:
    """The topic and the partition indexes of a `states_subject`, None for another subject."""
    return _changed_partitions(_STATES, subject)


def changed_assignments(subject: str) -> tuple[str, set[int]] | None:
    """The topic and the partition indexes of an `assignments_subject`, None for another subject."""
    return _changed_partitions(_ASSIGNMENTS, subject)


def _partitions_subject(kind: str, topic: str, indexes: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for index in sorted(set(indexes)):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    spans = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"{kind}{topic}:{spans}"


def _changed_partitions(kind: str, subject: str) -> tuple[str, set[int]] | None:
    if not subject.startswith(kind):
        return None
    topic, _, spans = subject.removeprefix(kind).partition(":")
    indexes: set[int] = set()
    for part in spans.split(","):
        first, dash, last = part.partition("-")
        numbers = (first, last) if dash else (first, first)
        if not all(number.isascii() and number.isdigit() and int(number) < PARTITIONS_MAX for number in numbers):
            raise NodeDamaged(CHANGES, f"has the subject {subject!r}")
        indexes.update(range(int(numbers[0]), int(numbers[1]) + 1))
    return topic, indexes


def _fail(batch: Sequence[_Commit], error: Exception) -> bool:
    """Give the error of a request to the commits that it concerns; False when it is of `/changes` itself."""
    index = error.operation_index if isinstance(error, TreeError) else None
    if index is None:
        for commit in batch:
            commit.error = error
        return True
    assert isinstance(error, TreeError)
    for commit in batch:
        if index < len(commit.operations):
            commit.error = type(error)(error.path, operation_index=index, hint=error.hint)
            return True
        index -= len(commit.operations)
    return False


def _encode_subjects(subjects: Sequence[str]) -> bytes:
    item = json.dumps(list(subjects), separators=(",", ":")).encode()
    return item if len(item) <= CHANGE_BYTES_MAX else b"null"


def _encode_ring(items: Sequence[bytes]) -> bytes:
    return b'{"version":%d,"ring":[%b]}' % (_FORMAT, b",".join(items))


def _pruned(items: Sequence[bytes]) -> tuple[bytes, ...]:
    kept = items[-RING_CHANGES_MAX:]
    excess = sum(map(len, kept)) - RING_BYTES_MAX
    dropped_count = 0
    while excess > 0:
        excess -= len(kept[dropped_count])
        dropped_count += 1
    return tuple(kept[dropped_count:])


# All registries of a broker read the same node.
@lru_cache(maxsize=1)
def _decode_ring(data: bytes) -> tuple[Subjects | None, ...]:
    if not data:
        return ()  # as `lay_out` made it
    fields = Fields.parse(CHANGES, data, version_max=_FORMAT)
    if fields.integer("version") < _FORMAT:
        return ()  # of the time before the ring: it named the last change alone
    ring = fields.content.get("ring")
    if not isinstance(ring, list):
        raise NodeDamaged(CHANGES, f"'ring' should be an array, not {ring!r}")
    return tuple(_decode_subjects(item) for item in ring)


def _decode_subjects(item: object) -> Subjects | None:
    if item is None:
        return None
    if not isinstance(item, list) or not _STRINGS.issuperset(map(type, item)):
        raise NodeDamaged(CHANGES, f"'ring' should hold arrays of strings, not {item!r}")
    return tuple(item)
