"""Moving the tree of a standalone broker to the tree that a cluster shares: once, checked, repeatable at any step.

A note in the target says that it is under way, and of which cluster; no broker starts on a tree with that note.  An
interrupted adoption is repeated: what is there already is compared, and the rest is made.  Only then, and after all
nodes were read back, the note goes.

The states of partitions name incarnations of the broker (broker epochs) that no session of the new tree can have: they
are replaced by one that no broker ever has, so the broker reaffirms itself when it starts.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from ottla.coordination import layout
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.topic_nodes import decode_state, encode_state
from ottla.coordination.tree import NO_OWNER, CreateNode, SetNode, Tree, batches
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.partition_state import NO_BROKER_EPOCH, ReplicaIncarnation

_STATE_PATH: Final = re.compile(r"/brokers/topics/[^/]+/[^/]+/partitions/[0-9]+/state")
# ZooKeeper keeps its own settings there.
_SERVERS_OWN: Final = "/zookeeper"
_READ_AT_ONCE: Final = 1_000


class TreeNotEmpty(OttlaError):
    """The target holds something that is not a part of this adoption."""

    hint = "name a chroot that is not used yet: --zookeeper HOST:PORT/NAME"


class AdoptionDiffers(OttlaError):
    """The target does not hold the nodes that were written to it."""

    hint = "another program changes the same nodes: choose another chroot, and adopt again"


class AdoptionUnderWay(OttlaError):
    """Brokers may not start on the tree yet."""

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "wait for `ottla cluster adopt`; if it was interrupted, run it again with the same arguments"


async def is_under_way(tree: Tree) -> bool:
    """Whether an adoption into this tree was started and is not complete."""
    return await tree.exists(layout.ADOPTION) is not None


async def adopt(source: Tree, target: Tree, cluster_id: str) -> int:
    """Copy all lasting nodes but the note; returns their count.  `finish` ends it.

    Raises `TreeNotEmpty`, `AdoptionDiffers`.
    """
    await _begin(target, cluster_id)
    wanted = {path: _adopted(path, data) async for path, data in _nodes(source)}
    present = {path: data async for path, data in _nodes(target)}
    strange = sorted(present.keys() - wanted.keys())
    if strange:
        raise TreeNotEmpty(f"the tree is not empty: it holds {strange[0]}")
    missing = [
        [CreateNode(path, data) if path not in present else SetNode(path, data)]
        for path, data in wanted.items()
        if present.get(path) != data
    ]
    for batch in batches(missing):
        await target.multi(batch)
    await _compare(target, wanted)
    return len(wanted)


async def finish(target: Tree) -> None:
    """The source's owner will not use it any more: brokers may start on the target."""
    if await is_under_way(target):
        await target.delete(layout.ADOPTION)


async def _begin(target: Tree, cluster_id: str) -> None:
    """Leave the note in an empty tree, or find that of the same adoption."""
    stat = await target.exists(layout.ADOPTION)
    if stat is not None:
        begun = Fields.parse(layout.ADOPTION, (await target.get(layout.ADOPTION)).data).text("cluster_id")
        if begun != cluster_id:
            raise TreeNotEmpty(f"the tree is being made for cluster {begun}, this directory holds {cluster_id}")
        return
    async for path, _ in _nodes(target):
        raise TreeNotEmpty(f"the tree is not empty: it holds {path}")
    await target.create(layout.ADOPTION, encode({"version": 1, "cluster_id": cluster_id}))


async def _compare(target: Tree, wanted: Mapping[str, bytes]) -> None:
    await target.sync()
    for paths in _slices(list(wanted)):
        for path, node in zip(paths, await target.get_many(paths), strict=True):
            if node is None or node.data != wanted[path]:
                raise AdoptionDiffers(f"the tree's {path} is not what was written there")


async def _nodes(tree: Tree) -> AsyncIterator[tuple[str, bytes]]:
    """All lasting nodes below the root with their data, parents before children."""
    level = ["/"]
    while level:
        below: list[str] = []
        for path in level:
            prefix = "" if path == "/" else path
            below += [f"{prefix}/{name}" for name in await tree.children(path)]
        level = []
        for paths in _slices([path for path in below if path not in (_SERVERS_OWN, layout.ADOPTION)]):
            for path, node in zip(paths, await tree.get_many(paths), strict=True):
                if node is not None and node.stat.ephemeral_owner == NO_OWNER:
                    yield path, node.data
                    if node.stat.children_count:
                        level.append(path)


def _adopted(path: str, data: bytes) -> bytes:
    if path == layout.CHANGES:
        # It counts the changes of its own tree.
        return b""
    if _STATE_PATH.fullmatch(path) is None:
        return data
    state = decode_state(path, data)
    return encode_state(state._replace(in_sync=_without_lives(state.in_sync), eligible=_without_lives(state.eligible)))


def _without_lives(members: Sequence[ReplicaIncarnation]) -> tuple[ReplicaIncarnation, ...]:
    return tuple(ReplicaIncarnation(member.node_id, NO_BROKER_EPOCH) for member in members)


def _slices(paths: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while part := list(islice(rest, _READ_AT_ONCE)):
        yield part
