"""What a broker changes so that it serves what the tree says: a function of both, without a disk or a tree."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.partitions.partition_table import Refusal
from ottla.broker.topics.reconciliation import (
    HeldPartition,
    TopicChanges,
    TreeViews,
    changed_partitions,
    changed_topics,
    other_extents,
    reconcile,
)
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics_view import NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation

HERE, ELSEWHERE = NodeId(1), NodeId(2)
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)
STORAGE_ERROR, FOREIGN = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID
NO_CONFIGS = ConfigsView(0, MappingProxyType({}))
NOTHING = TreeViews(NO_TOPICS, NO_CONFIGS)


def topic(topic_id: UUID = NEW_ID, count: int = 2, *, name: str = "t", epoch: int = 3, node: NodeId = HERE) -> Topic:
    state = PartitionState(node, LeaderEpoch(epoch), (ReplicaIncarnation(node, 1),))
    return Topic(name, topic_id, tuple(PartitionNode(index, (node,), state, 0) for index in range(count)))


def views(*topics: Topic, settings: dict[str, dict[str, str]] | None = None) -> TreeViews:
    entities = {ConfigEntity.topic(name): values for name, values in (settings or {}).items()}
    return TreeViews(TopicsView.of(1, {each.name: each for each in topics}), ConfigsView(1, entities))


def opened(topic_id: UUID = NEW_ID) -> HeldPartition:
    return HeldPartition(is_on_disk=True, is_open=True, topic_id=topic_id)


def served(topic_id: UUID = NEW_ID, index: int = 0, *, epoch: int = 3) -> HeldPartition:
    return opened(topic_id)._replace(served_by=topic(epoch=epoch).partitions[index], leader_epoch=epoch)


def refused(code: ErrorCode, topic_id: UUID = NEW_ID) -> HeldPartition:
    return HeldPartition(refusal=Refusal(topic_id, code))


def changes(
    new: TreeViews, *held: HeldPartition, old: TreeViews = NOTHING, deleted: UUID | None = None, **options: Any
) -> dict[str, Any]:
    """The required changes, by kind; partitions as indexes."""
    deletions = [] if deleted is None else [TopicDeletion("t", deleted, 2)]
    found = reconcile("t", old, new, HERE, dict(enumerate(held)), deletions, **options)
    return {kind: value for kind, value in _by_kind(found).items() if value}


def _by_kind(found: TopicChanges) -> dict[str, Any]:
    return {
        "stop": [each.partition for each in found.stop],
        "drop": [each.partition for each in found.drop],
        "set_aside": [each.partition for each in found.set_aside],
        "stray": [each.partition for each in found.stray],
        "keep": [each.partition for each in found.keep],
        "refuse": [(each.partition, *refusal) for each, refusal in found.refuse],
        "serve": [node.partition_index for node in found.serve],
        "update": [node.partition_index for node in found.update],
        "make": [node.partition_index for node in found.make],
        "applies_config": found.applies_config,
    }


def test_new_topic_gets_logs() -> None:
    assert changes(views(topic())) == {"make": [0, 1]}


def test_added_partitions_get_logs_and_the_others_stay() -> None:
    assert changes(views(topic(count=3)), served(), served(index=1)) == {"make": [2]}


def test_logs_that_are_open_are_served() -> None:
    assert changes(views(topic()), opened(), opened()) == {"serve": [0, 1]}


def test_nothing_changes_where_all_is_as_the_tree_says() -> None:
    view = views(topic(), settings={"t": {"retention.ms": "1"}})
    assert changes(view, served(), served(index=1), old=view) == {}


def test_partition_is_updated_when_its_node_changed() -> None:
    assert changes(views(topic(epoch=4)), served(epoch=3), served(index=1, epoch=4)) == {"update": [0]}


def test_partitions_that_cannot_have_changed_are_not_looked_at() -> None:
    assert changes(views(topic(epoch=4, count=3)), served(), served(index=1), only=[1]) == {"update": [1]}
    assert changes(views(topic(epoch=4, count=3)), only=[2]) == {"make": [2]}


def test_partitions_of_other_brokers_are_not_served() -> None:
    assert changes(views(topic(node=ELSEWHERE))) == {}
    assert changes(views(topic(node=ELSEWHERE)), refused(STORAGE_ERROR)) == {"stop": [0]}


def moved(*, in_sync: tuple[NodeId, ...], eligible: tuple[NodeId, ...] = (), epoch: int = 3) -> TreeViews:
    """A topic whose replica was moved from here to another broker."""
    incarnations = [tuple(ReplicaIncarnation(node, 1) for node in nodes) for nodes in (in_sync, eligible)]
    state = PartitionState(in_sync[0] if in_sync else NO_LEADER, LeaderEpoch(epoch), *incarnations)
    return views(Topic("t", NEW_ID, (PartitionNode(0, (ELSEWHERE,), state, 0),)))


def test_replica_that_was_moved_is_dropped_once_another_one_is_in_sync() -> None:
    assert changes(moved(in_sync=(ELSEWHERE,)), served()) == {"stop": [0], "drop": [0]}
    assert changes(moved(in_sync=(ELSEWHERE,)), opened()) == {"drop": [0]}


@pytest.mark.parametrize(
    "view",
    [
        moved(in_sync=(ELSEWHERE, HERE)),
        moved(in_sync=(ELSEWHERE,), eligible=(HERE,)),
        moved(in_sync=()),
        moved(in_sync=(NodeId(7),)),
    ],
    ids=["in-sync", "eligible", "nobody-in-sync", "only-a-former-replica-in-sync"],
)
def test_replica_that_was_moved_stays_while_an_election_may_need_it(view: TreeViews) -> None:
    assert changes(view, served()) == {"stop": [0]}


def test_moved_replica_with_a_later_epoch_than_the_trees_stays() -> None:
    assert changes(moved(in_sync=(ELSEWHERE,), epoch=2), served(epoch=3)) == {"stop": [0]}


def test_log_of_a_deleted_topic_is_dropped_where_its_successor_is_elsewhere() -> None:
    assert changes(views(topic(node=ELSEWHERE)), opened(OLD_ID), deleted=OLD_ID) == {"drop": [0]}
    assert changes(views(topic(node=ELSEWHERE)), opened(OLD_ID)) == {"keep": [0]}


def test_deleted_topic_is_stopped_and_dropped() -> None:
    assert changes(NOTHING, served(OLD_ID), served(OLD_ID), deleted=OLD_ID) == {"stop": [0, 1], "drop": [0, 1]}


def test_deleted_topic_of_which_nothing_was_made_is_only_stopped() -> None:
    assert changes(NOTHING, refused(STORAGE_ERROR, OLD_ID), deleted=OLD_ID) == {"stop": [0]}


def test_what_a_failed_creation_left_is_dropped_with_its_topic() -> None:
    assert changes(NOTHING, HeldPartition(topic_id=OLD_ID), deleted=OLD_ID) == {"drop": [0]}


def test_log_without_a_topic_is_kept_unless_the_tree_notes_its_deletion() -> None:
    assert changes(NOTHING, opened(OLD_ID)) == {"keep": [0]}
    assert changes(NOTHING, opened(OLD_ID), deleted=NEW_ID) == {"keep": [0]}
    assert changes(NOTHING, opened(OLD_ID), deleted=OLD_ID) == {"drop": [0]}


def test_log_beyond_the_topics_partitions_is_kept() -> None:
    assert changes(views(topic(count=1)), served(), opened()) == {"keep": [1]}


def test_unreadable_log_goes_with_the_deleted_topic_of_its_name_only() -> None:
    unreadable = HeldPartition(is_on_disk=True, failure=STORAGE_ERROR)
    assert changes(NOTHING, unreadable) == {"keep": [0]}
    assert changes(NOTHING, unreadable, unreadable, unreadable, deleted=OLD_ID) == {"drop": [0, 1], "keep": [2]}
    assert changes(views(topic(count=1)), unreadable, deleted=OLD_ID) == {"refuse": [(0, NEW_ID, STORAGE_ERROR)]}


def test_recreated_topic_gets_new_logs_in_place_of_the_deleted_ones() -> None:
    found = changes(views(topic()), served(OLD_ID), served(OLD_ID), deleted=OLD_ID)
    assert found == {"stop": [0, 1], "drop": [0, 1], "make": [0, 1]}


def test_deletion_that_is_not_durable_is_repeated_before_a_new_log_is_made() -> None:
    assert changes(views(topic(count=1)), HeldPartition(is_on_disk=True)) == {"drop": [0], "make": [0]}
    assert changes(NOTHING, HeldPartition(is_on_disk=True, topic_id=OLD_ID), deleted=OLD_ID) == {"drop": [0]}


def test_log_of_another_topic_is_neither_served_nor_touched() -> None:
    assert changes(views(topic(count=1)), opened(OLD_ID)) == {"refuse": [(0, NEW_ID, FOREIGN)]}
    assert changes(views(topic(count=1)), served(OLD_ID)) == {"stop": [0], "refuse": [(0, NEW_ID, FOREIGN)]}


def test_log_that_was_not_opened_is_refused_once() -> None:
    failed = HeldPartition(is_on_disk=True, topic_id=NEW_ID, failure=STORAGE_ERROR)
    assert changes(views(topic(count=1)), failed) == {"refuse": [(0, NEW_ID, STORAGE_ERROR)]}
    known = failed._replace(refusal=Refusal(NEW_ID, STORAGE_ERROR))
    assert changes(views(topic(count=1)), known) == {}
    of_another = failed._replace(refusal=Refusal(OLD_ID, STORAGE_ERROR))
    assert changes(views(topic(count=1)), of_another) == {"refuse": [(0, NEW_ID, STORAGE_ERROR)]}


def shared(*, in_sync: tuple[NodeId, ...], eligible: tuple[NodeId, ...] = ()) -> TreeViews:
    """A topic with a replica here and one elsewhere."""
    incarnations = [tuple(ReplicaIncarnation(node, 1) for node in nodes) for nodes in (in_sync, eligible)]
    state = PartitionState(in_sync[0] if in_sync else NO_LEADER, LeaderEpoch(3), *incarnations)
    return views(Topic("t", NEW_ID, (PartitionNode(0, (HERE, ELSEWHERE), state, 0),)))


def test_damaged_log_is_set_aside_and_made_anew_where_other_replicas_have_all_of_it() -> None:
    damaged = HeldPartition(is_on_disk=True, topic_id=NEW_ID, failure=STORAGE_ERROR)
    anew = {"set_aside": [0], "make": [0]}
    assert changes(shared(in_sync=(ELSEWHERE,)), damaged) == anew
    assert changes(shared(in_sync=(ELSEWHERE,)), damaged._replace(topic_id=None)) == anew
    refusal = {"refuse": [(0, NEW_ID, STORAGE_ERROR)]}
    assert changes(shared(in_sync=(ELSEWHERE, HERE)), damaged) == refusal, "it leaves first"
    assert changes(shared(in_sync=(ELSEWHERE,), eligible=(HERE,)), damaged) == refusal
    assert changes(shared(in_sync=()), damaged) == refusal, "it may be all that there is"


def test_log_of_a_topic_that_the_cluster_does_not_know_is_stray_once_its_whole_tree_was_read() -> None:
    assert changes(NOTHING, opened(OLD_ID), is_complete=True) == {"stray": [0]}
    assert changes(NOTHING, opened(OLD_ID), is_complete=True, deleted=OLD_ID) == {"drop": [0]}
    unreadable = HeldPartition(is_on_disk=True, failure=STORAGE_ERROR)
    assert changes(NOTHING, unreadable, is_complete=True) == {"keep": [0]}
    assert changes(views(topic(count=1)), served(), opened(), is_complete=True) == {"keep": [1]}, "its topic is known"
    assert changes(views(topic(node=ELSEWHERE)), opened(OLD_ID), is_complete=True) == {"stray": [0]}


def test_stray_log_gives_way_to_a_new_topic_of_which_other_replicas_have_all() -> None:
    foreign = opened(OLD_ID)
    assert changes(shared(in_sync=(ELSEWHERE,)), foreign, is_complete=True) == {"stray": [0], "make": [0]}
    refusal = {"refuse": [(0, NEW_ID, FOREIGN)]}
    assert changes(shared(in_sync=(ELSEWHERE,)), foreign) == refusal
    assert changes(shared(in_sync=(HERE, ELSEWHERE)), foreign, is_complete=True) == refusal, "the tree may be older"


def test_partition_whose_log_could_not_be_made_gets_it() -> None:
    assert changes(views(topic()), refused(STORAGE_ERROR), served(index=1)) == {"make": [0]}


@pytest.mark.parametrize("before", [{}, {"t": {"retention.ms": "2"}}, {"t": {"retention.ms": "1", "a": "b"}}])
def test_other_settings_are_applied(before: dict[str, dict[str, str]]) -> None:
    old, new = views(topic(), settings=before), views(topic(), settings={"t": {"retention.ms": "1"}})
    assert changes(new, served(), served(index=1), old=old) == {"applies_config": True}


def test_settings_that_could_not_be_applied_are_applied_again() -> None:
    view = views(topic())
    assert changes(view, served(), served(index=1), old=view, is_settled=False) == {"applies_config": True}


def test_topics_are_compared_by_identity() -> None:
    first, second, third = (topic(UUID(int=10 + number), name=name) for number, name in enumerate("abc"))
    old = views(first, second, settings={"a": {"x": "1"}})
    assert changed_topics(old, old) == []
    assert changed_topics(NOTHING, old) == ["a", "b"]
    grown = second._replace(partitions=second.partitions[:1])
    new = TreeViews(TopicsView.of(2, {"a": first, "b": grown, "c": third}), old.configs)
    assert changed_topics(old, new) == ["b", "c"]
    assert changed_topics(new, old) == ["b", "c"]
    assert changed_topics(old, old._replace(configs=views(settings={"a": {"x": "1"}}).configs)) == ["a"]


def test_partitions_are_compared_by_identity_while_their_topic_is_the_same() -> None:
    before = topic(count=3)
    changed = before._replace(
        partitions=(*before.partitions[:2], before.partitions[2]._replace(state_version=1)),
    )
    assert changed_partitions(before, before) == []
    assert changed_partitions(before, changed) == [2]
    assert changed_partitions(before, topic(OLD_ID, 3)) is None
    assert changed_partitions(before, topic(count=4)) is None
    assert changed_partitions(None, before) is None
    assert changed_partitions(before, None) is None


def test_extents_differ_by_id_and_count_and_not_by_state() -> None:
    def view(of: Topic) -> TopicsView:
        return TopicsView.of(1, {"t": of})

    assert not other_extents(view(topic(epoch=3)), view(topic(epoch=4)), ["t"])
    assert not other_extents(view(topic()), view(topic(count=5)), [])
    assert other_extents(view(topic()), view(topic(count=5)), ["t"])
    assert other_extents(view(topic()), view(topic(OLD_ID)), ["t"])
    assert other_extents(view(topic()), NO_TOPICS, ["t"])
    assert other_extents(NO_TOPICS, view(topic()), ["t"])
