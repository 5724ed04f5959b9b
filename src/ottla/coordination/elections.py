"""Leader election after a broker has started.  Pure: from a view and an event to the states to write.

These are the rules for one broker without followers; those for several come with replication.
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
    """The state changes of a sole broker at its start: none after a clean stop, a new epoch everywhere after a crash.

    A crash may have lost records that were appended but not acknowledged, and later ones get their offsets; the epoch
    distinguishes the two, for consumers that check (KIP-320) and for later replicas.  After a clean stop the log is
    whole, no other broker could have led, and a new epoch would only invalidate clients' metadata.

    `log_epochs` has the greatest epoch in each log.  One above the tree's means that the tree is older than the log, as
    after a restore from a copy: the next epoch is above both, since a log's epochs never decrease.

    Partitions with other replicas are unchanged: one broker's start does not show which replicas are in sync.
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
