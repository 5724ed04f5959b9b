"""Whether a data directory is the newest one of its broker, and the nodes below `/brokers/generations` that record it.

A broker counts its *directory generation* in two places: in the data directory, and in a lasting node of the tree,
there together with the directory's id.  A move makes the directory's durable first, then the tree's.  So after any
crash the newest directory has at least the tree's generation, and a copy of a time before the last move has a lower
one.  The tree's may be lower: a move was interrupted, or the tree was restored from an old copy.

Each write of a node replaces exactly the version that was read: of two directories that serve one broker id at the same
time at most one can move it.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.layout import generation_path
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.tree import CreateNode, NoNode, Operation, SetNode, Tree
from ottla.model.identifiers import NodeId, uuid_to_text

NO_GENERATION: Final = 0
# Of a node that does not exist.
NO_VERSION: Final = -1


class HeldGeneration(NamedTuple):
    """What a data directory records of itself: `NO_GENERATION` where none is recorded, or none can be read.

    `has_complete_logs` is False for a directory whose logs are known to lack what the broker reported:
    a new one, or a copy that an operator accepted.
    """

    directory_id: UUID
    generation: int
    has_complete_logs: bool


class SeenGeneration(NamedTuple):
    """The generation that the tree has of a broker, and the directory that it is of."""

    directory_id: UUID
    generation: int


class GenerationNode(NamedTuple):
    """What the tree has, None where it has nothing, and the node's version."""

    seen: SeenGeneration | None
    version: int


def is_stale(held: HeldGeneration, seen: SeenGeneration | None) -> bool:
    """Whether the broker may have reported records that this directory lacks.

    A directory that keeps nothing cannot mislead.  Without a generation in the tree the broker was never registered by
    a version that counts: its directory is accepted, once.  Generations of two directories do not compare, since the
    interrupted moves of the former one may have taken it above the other.
    """
    if seen is None or not held.has_complete_logs:
        return False
    return held.directory_id != seen.directory_id or held.generation < seen.generation


def next_generation(held: HeldGeneration, seen: SeenGeneration | None) -> int:
    """Above both, so that every copy that was made before has a lower one."""
    return max(held.generation, NO_GENERATION if seen is None else seen.generation) + 1


async def read_generation(tree: Tree, node_id: NodeId) -> GenerationNode:
    path = generation_path(node_id)
    try:
        node = await tree.get(path)
    except NoNode:
        return GenerationNode(None, NO_VERSION)
    fields = Fields.parse(path, node.data)
    directory_id = fields.uuid_of(fields.text("directory_id"))
    return GenerationNode(SeenGeneration(directory_id, fields.integer("generation")), node.stat.version)


def generation_write(node_id: NodeId, after: SeenGeneration, expected_version: int) -> Operation:
    """Fails with `BadVersion`, `NodeExists` or `NoNode` when the node is another one than was read."""
    path = generation_path(node_id)
    content = {"version": 1, "generation": after.generation, "directory_id": uuid_to_text(after.directory_id)}
    if expected_version == NO_VERSION:
        return CreateNode(path, encode(content))
    return SetNode(path, encode(content), expected_version)
