"""A tree made anew for a directory that has lost its own: topics as their logs tell, settings as somebody gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.imported_topics import ImportedTopic, register
from ottla.coordination.layout import lay_out
from ottla.coordination.registries import cluster_id
from ottla.coordination.tree import Tree
from ottla.model.identifiers import NodeId


async def fill(
    tree: Tree,
    node_id: NodeId,
    own_cluster_id: UUID | None,
    topics: Sequence[ImportedTopic],
    settings: Mapping[ConfigEntity, Mapping[str, str]],
) -> None:
    """Fill a tree that is empty.  `own_cluster_id` is the directory's, None when it has none yet: the first broker that
    starts makes one.  `settings` are those of brokers and groups.
    """
    await lay_out(tree)
    if own_cluster_id is not None:
        found = own_cluster_id
        await cluster_id(tree, new_id=lambda: found)
    for topic in topics:
        await register(tree, node_id, topic)
    configs = ConfigRegistry(tree)
    for entity, texts in settings.items():
        await configs.update(entity, partial(_replaced, dict(texts)))


def _replaced(wanted: Mapping[str, str], _: Mapping[str, str]) -> Mapping[str, str]:
    return wanted
