"""The paths of the tree: those of the 2011 paper and early Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.coordination.tree import CreateNode, NodeExists, Tree
from ottla.model.identifiers import NodeId, uuid_to_text

CHANGES: Final = "/changes"
CLUSTER_ID: Final = "/cluster/id"
LOGIN_SECRET: Final = "/cluster/login_secret"
BROKER_IDS: Final = "/brokers/ids"
GENERATIONS: Final = "/brokers/generations"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
GROUP_CONFIGS: Final = "/config/groups"
USER_CONFIGS: Final = "/config/users"
ACLS: Final = "/acls"
DELETED_TOPICS: Final = "/admin/delete_topics"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURES: Final = "/feature"
# Of groups whose consumers share partitions without a coordinator: the client's `consumer_registry` has the nodes
# below.
CONSUMERS: Final = "/consumers"
# While the tree of a standalone broker is being moved here.
ADOPTION: Final = "/adoption"

# Parents before children.  Created once; nothing below creates missing parents.
STANDING: Final = (
    CHANGES,
    "/cluster",
    "/brokers",
    BROKER_IDS,
    GENERATIONS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    USER_CONFIGS,
    "/config/clients",
    "/config/ips",
    ACLS,
    "/admin",
    DELETED_TOPICS,
    "/admin/reassign",
    CONSUMERS,
)


def broker_path(node_id: NodeId) -> str:
    return f"{BROKER_IDS}/{node_id}"


def generation_path(node_id: NodeId) -> str:
    """The newest generation of the broker's data directory; it stays when the broker is gone."""
    return f"{GENERATIONS}/{node_id}"


def topic_path(name: str) -> str:
    """The pointer: the name's current topic id, and the replicas of its partitions."""
    return f"{TOPICS}/{name}"


def topic_id_path(name: str, topic_id: UUID) -> str:
    """The topic itself: one that is recreated under the same name has entirely different nodes."""
    return f"{TOPICS}/{name}/{uuid_to_text(topic_id)}"


def partitions_path(name: str, topic_id: UUID) -> str:
    return f"{topic_id_path(name, topic_id)}/partitions"


def partition_path(name: str, topic_id: UUID, partition: int) -> str:
    return f"{partitions_path(name, topic_id)}/{partition}"


def state_path(name: str, topic_id: UUID, partition: int) -> str:
    return f"{partition_path(name, topic_id, partition)}/state"


def state_paths(name: str, topic_id: UUID, partitions: Iterable[int]) -> list[str]:
    parent = partitions_path(name, topic_id)
    return [f"{parent}/{partition}/state" for partition in partitions]


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def deleted_topic_path(topic_id: UUID) -> str:
    return f"{DELETED_TOPICS}/{uuid_to_text(topic_id)}"


async def lay_out(tree: Tree) -> None:
    """Create the root nodes; the first process creates them, the others find them."""
    while True:
        nodes = await tree.get_many(STANDING)
        missing = [path for path, node in zip(STANDING, nodes, strict=True) if node is None]
        if not missing:
            return
        try:
            await tree.multi([CreateNode(path) for path in missing])
        except NodeExists:
            continue  # another broker was faster: read again
