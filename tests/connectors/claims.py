"""The owner of each partition over time, and its commits: from all writes to the tree.

Only the writes count: the nodes under /consumers, in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

from ottla.client.consumer_registry.group_nodes import (
    ConsumerNode,
    OffsetContent,
    decode_consumer,
    decode_offset,
    decode_owner,
)
from ottla.consumers.share import StreamId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from tests.connectors.tree_log import Change, Kind

CONSUMERS: Final = "consumers"
FOREVER_MS: Final = 2**62
NOTHING: Final = OffsetContent(NO_OFFSET, None, None, "", 0)


class End(Enum):
    """How an ownership ended."""

    NEVER = "never"
    RELEASED = "released"
    SESSION = "its session ended"


class OffsetWrite(NamedTuple):
    at_ms: int
    offset: int


@dataclass
class Ownership:
    """The ownership of one partition by one stream; times are the server's wall clock."""

    stream: StreamId
    session_id: int
    began_ms: int
    start: int
    ended_ms: int = FOREVER_MS
    end: End = End.NEVER
    # The offset node at the end: as released, or as committed last.
    last_offset: int = NO_OFFSET
    commits: list[OffsetWrite] = field(default_factory=list)
    # An operator has set the offset meanwhile: the owner releases without a commit.
    was_reset: bool = False


@dataclass
class GroupHistory:
    """Of one group; `wrongs` are writes of owners that break a rule."""

    ownerships: dict[TopicPartition, list[Ownership]] = field(default_factory=dict)
    # The registrations of all consumers.
    consumers: dict[str, ConsumerNode] = field(default_factory=dict)
    went_back: list[str] = field(default_factory=list)
    not_fenced: list[str] = field(default_factory=list)
    resets_count: int = 0
    commits_count: int = 0
    claims_count: int = 0
    # Ephemeral nodes that exist at the end.
    left_over: set[str] = field(default_factory=set)


def read_groups(changes: Iterable[Change]) -> dict[str, GroupHistory]:
    """All groups that were ever in the tree."""
    groups: dict[str, GroupHistory] = {}
    nodes: dict[tuple[str, TopicPartition], OffsetContent] = {}
    for _, together in groupby(changes, key=lambda change: change.zxid):
        _apply(list(together), groups, nodes)
    return groups


def _apply(
    changes: list[Change], groups: dict[str, GroupHistory], nodes: dict[tuple[str, TopicPartition], OffsetContent]
) -> None:
    """The changes of one transaction.  Owners first: they determine the meaning of an offset's write."""
    claimed: dict[tuple[str, TopicPartition], Ownership] = {}
    released: dict[tuple[str, TopicPartition], Ownership] = {}
    for change, group_id, rest in _of_groups(changes):
        group = groups.setdefault(group_id, GroupHistory())
        match rest:
            case ["ids", consumer_id] if change.kind is not Kind.DELETED:
                group.consumers[consumer_id] = decode_consumer(change.path, change.data)
                group.left_over.add(change.path)
            case ["ids", _]:
                group.left_over.discard(change.path)
            case ["owners", topic, index]:
                key = group_id, TopicPartition(topic, int(index))
                owned = group.ownerships.setdefault(key[1], [])
                if change.kind is Kind.DELETED:
                    ownership = released[key] = owned[-1]
                    ownership.ended_ms = change.at_ms
                    ownership.end = End.SESSION if change.session_ended else End.RELEASED
                    group.left_over.discard(change.path)
                else:
                    stream = decode_owner(change.path, change.data)
                    claimed[key] = Ownership(stream, change.session_id, change.at_ms, NO_OFFSET)
                    owned.append(claimed[key])
                    group.claims_count += 1
                    group.left_over.add(change.path)
            case _:
                pass
    for change, group_id, rest in _of_groups(changes):
        match rest:
            case ["offsets", topic, index]:
                key = group_id, TopicPartition(topic, int(index))
                if change.kind is Kind.DELETED:
                    nodes.pop(key, None)
                else:
                    _write(change, key, groups[group_id], nodes, claimed.get(key), released.get(key))
            case _:
                pass


def _write(
    change: Change,
    key: tuple[str, TopicPartition],
    group: GroupHistory,
    nodes: dict[tuple[str, TopicPartition], OffsetContent],
    claimed: Ownership | None,
    released: Ownership | None,
) -> None:
    partition = key[1]
    former = nodes.get(key, NOTHING)
    nodes[key] = written = decode_offset(change.path, change.data)
    where = f"{partition} {former.offset} -> {written.offset} by session {change.session_id:x} at {change.at_ms}"
    if claimed is None and released is None and written.claim is None:
        # Not by a claim: an operator's write.
        group.resets_count += 1
        for ownership in group.ownerships.get(partition, [])[-1:]:
            ownership.was_reset |= ownership.end is End.NEVER
        return
    if written.offset < former.offset:
        group.went_back.append(where)
    if claimed is not None:
        claimed.start = claimed.last_offset = written.offset
        if written.offset != former.offset:
            group.not_fenced.append(f"{where}: a claim that moves the offset")
    elif released is not None:
        released.last_offset = written.offset
        if former.claim is None and written.offset != former.offset:
            group.not_fenced.append(f"{where}: a release over an operator's offset")
    else:
        group.commits_count += 1
        if written.claim != former.claim:
            group.not_fenced.append(f"{where}: claim {written.claim} over {former.claim}")
            return
        ownership = group.ownerships[partition][-1]
        ownership.commits.append(OffsetWrite(change.at_ms, written.offset))
        ownership.last_offset = written.offset


def _of_groups(changes: Iterable[Change]) -> Iterator[tuple[Change, str, list[str]]]:
    for change in changes:
        parts = change.path.split("/")[1:]
        if CONSUMERS in parts[:2]:
            _, group_id, *rest = [*parts[parts.index(CONSUMERS) :], ""]
            yield change, group_id, rest[:-1]
