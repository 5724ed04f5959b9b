"""What a broker that is about to stop writes first: others lead what it leads, and it is in sync nowhere.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordination.elections import LiveEpochs, elected
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import PartitionState


def departed(
    replicas: Sequence[NodeId], state: PartitionState, node_id: NodeId, live: LiveEpochs, min_in_sync: int
) -> PartitionState | None:
    """The state without this broker in the in-sync set, under another leader where it leads.

    None where it is not in sync, or nobody else is: then it keeps its place until it is gone, and again afterwards.
    """
    others = tuple(member for member in state.current_in_sync(live) if member.node_id != node_id)
    if not others or all(member.node_id != node_id for member in state.in_sync):
        return None
    if state.leader == node_id:
        led = elected(replicas, state, live, min_in_sync, excluded={node_id})
        assert led is not None, "one of the others is in sync"
        state = led
    remaining = tuple(member for member in state.in_sync if member.node_id != node_id)
    return state.with_in_sync(remaining, replicas, min_in_sync)
