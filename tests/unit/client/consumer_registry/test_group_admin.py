from __future__ import annotations

from collections.abc import Mapping

from ottla.client.consumer_registry.group_admin import PROBLEMS_MAX, GroupContents, standing_of
from ottla.client.consumer_registry.group_nodes import ConsumerNode
from ottla.client.groups.group_types import EMPTY, RECONCILING, STABLE
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.consumers.share import StreamId
from ottla.coordination.node_json import NodeDamaged
from ottla.model.identifiers import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
A0, A1, B0 = StreamId("a", 0), StreamId("a", 1), StreamId("b", 0)


def consumer(subscription: Subscription, host: str = "host-1") -> ConsumerNode:
    return ConsumerNode(subscription, host, 42, "reader", 0)


def group(
    consumers: Mapping[str, Subscription], owners: Mapping[TopicPartition, StreamId], *damaged: NodeDamaged
) -> GroupContents:
    nodes = {
        consumer_id: consumer(subscription, f"host-{consumer_id}") for consumer_id, subscription in consumers.items()
    }
    return GroupContents(nodes, owners, {}, damaged)


def test_group_is_stable_when_every_partition_has_the_owner_whose_share_it_is() -> None:
    contents = group({"a": Subscription({"t": 2}), "b": Subscription({"t": 1})}, {T0: A0, T1: A1, T2: B0})
    state, members, problems = standing_of(contents, {"t": 3, "other": 5})
    assert (state, problems) == (STABLE, ())
    assert [(each.member_id, each.host, each.client_id, each.assignment, each.target) for each in members] == [
        ("a-0", "host-a", "reader", (T0,), (T0,)),
        ("a-1", "host-a", "reader", (T1,), (T1,)),
        ("b-0", "host-b", "reader", (T2,), (T2,)),
    ]


def test_partition_without_an_owner_is_told_with_whose_it_is_to_be() -> None:
    state, members, problems = standing_of(group({"a": Subscription({"t": 1})}, {T0: A0}), {"t": 2})
    assert (state, problems) == (RECONCILING, ("t-1 has no owner: it falls to a-0",))
    assert (members[0].assignment, members[0].target) == ((T0,), (T0, T1))


def test_partition_that_another_consumer_holds_is_told_with_both() -> None:
    contents = group({"a": Subscription({"t": 1}), "b": Subscription({"t": 1})}, {T0: A0, T1: A0})
    state, _, problems = standing_of(contents, {"t": 2})
    assert (state, problems) == (RECONCILING, ("t-1 is held by a-0, and falls to b-0",))


def test_owner_that_is_registered_no_more_is_a_member_and_told() -> None:
    state, members, problems = standing_of(group({"a": Subscription({"t": 1})}, {T0: A0, T1: B0}), {"t": 2})
    assert state == RECONCILING
    assert problems == ("t-1 is held by b-0, which has left or lost its session, until that ends",)
    assert [(each.member_id, each.host, each.assignment) for each in members][1] == ("b-0", "", (T1,))


def test_partition_that_nobody_reads_any_more_is_told() -> None:
    state, _, problems = standing_of(group({}, {T0: B0}), {"t": 2})
    assert (state, problems) == (RECONCILING, ("t-0 is held by b-0, and no consumer of the group reads it",))


def test_group_without_consumers_is_empty() -> None:
    assert standing_of(group({}, {}), {"t": 2}) == (EMPTY, (), ())


def test_streams_without_a_share_are_members_also_of_a_filter_that_selects_nothing() -> None:
    contents = group({"a": Subscription({"t": 2}), "b": Subscription({}, TopicFilter("nothing.*"), 1)}, {T0: A0})
    state, members, _ = standing_of(contents, {"t": 1})
    assert [each.member_id for each in members] == ["a-0", "a-1", "b-0"]
    assert state == STABLE


def test_filter_shares_what_it_selects() -> None:
    contents = group({"a": Subscription({}, TopicFilter("t|u", "u"), 1)}, {T0: A0})
    assert standing_of(contents, {"t": 1, "u": 1, "v": 1}).state == STABLE


def test_topic_that_does_not_exist_and_damaged_nodes_are_told_and_keep_nothing_from_being_stable() -> None:
    damaged = NodeDamaged("/consumers/jobs/ids/x", "is not JSON")
    contents = group({"a": Subscription({"t": 1, "gone": 1})}, {T0: A0}, damaged)
    state, _, problems = standing_of(contents, {"t": 1})
    assert state == STABLE
    assert problems == ("topic gone is read, and does not exist", "tree node /consumers/jobs/ids/x: is not JSON")


def test_many_problems_of_one_kind_are_counted() -> None:
    state, _, problems = standing_of(group({"a": Subscription({"t": 1})}, {}), {"t": 1_000})
    assert state == RECONCILING
    assert len(problems) == PROBLEMS_MAX + 1
    assert problems[-1] == f"... and {1_000 - PROBLEMS_MAX} more"
