"""Who leads after a broker has started.  Pure: a view and an event in, the states to write out.

So far the rules for one broker without followers; those for several come with replication.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordination.topics import StateChange
from ottla.coordination.topics_view import TopicsView
from ottla.model.identifiers import NO_LEADER_EPOCH, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation


def after_start(
    view: TopicsView,
    node_id: NodeId,
    broker_epoch: int,
    log_epochs: Mapping[TopicPartition, int],
    *,
    was_clean: bool,
) -> list[StateChange]:
    """What a sole broker changes when it comes up: nothing after a clean stop, a new epoch everywhere after a crash.

    A crash may have taken records that were handed out but not acknowledged, and the next ones get their offsets; the
    epoch tells the two apart, for consumers that check (KIP-320) and for every replica that comes later.  After a clean
    stop the log is whole, nobody else could have led, and the epoch would only invalidate what clients know.

    `log_epochs` has the greatest epoch in each log.  One above the tree's means that the tree is older than the log, as
    after a restore from a copy: the next epoch is above both, since a log's epochs never go back.

    Partitions that others replicate too are left alone: one start is not enough to know who is in sync.
    """
    changes: list[StateChange] = []
    for topic, partition in view.partitions():
        if partition.replicas != (node_id,):
            continue
        state = partition.state
        log_epoch = log_epochs.get(TopicPartition(topic.name, partition.partition_index), NO_LEADER_EPOCH)
        if was_clean and state.leader == node_id and log_epoch <= state.leader_epoch:
            continue
        next_epoch = LeaderEpoch(max(state.leader_epoch, log_epoch) + 1)
        led = PartitionState(node_id, next_epoch, (ReplicaIncarnation(node_id, broker_epoch),))
        assert led.leader_epoch > state.leader_epoch
        changes.append(StateChange(topic, partition, led))
    return changes
