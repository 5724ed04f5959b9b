"""Who leads after a broker has started.  Pure: a view and an event in, the states to write out.

So far the rules for one broker without followers; those for several come with replication.
"""

from __future__ import annotations

from ottla.coordination.topics import StateChange
from ottla.coordination.topics_view import TopicsView
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation


def after_start(view: TopicsView, node_id: NodeId, broker_epoch: int, *, was_clean: bool) -> list[StateChange]:
    """What a sole broker changes when it comes up: nothing after a clean stop, a new epoch everywhere after a crash.

    A crash may have taken records that were handed out but not acknowledged, and the next ones get their offsets; the
    epoch tells the two apart, for consumers that check (KIP-320) and for every replica that comes later.  After a clean
    stop the log is whole, nobody else could have led, and the epoch would only invalidate what clients know.

    Partitions that others replicate too are left alone: one start is not enough to know who is in sync.
    """
    changes: list[StateChange] = []
    for topic, partition in view.partitions():
        if partition.replicas != (node_id,):
            continue
        state = partition.state
        if was_clean and state.leader == node_id:
            continue
        next_epoch = LeaderEpoch(state.leader_epoch + 1)
        led = PartitionState(node_id, next_epoch, (ReplicaIncarnation(node_id, broker_epoch),))
        assert led.leader_epoch > state.leader_epoch
        changes.append(StateChange(topic, partition, led))
    return changes
