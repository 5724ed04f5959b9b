"""A consumer group as an administrator sees it."""

from __future__ import annotations

from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.replies import NamedTopicPartitions
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, topic_id


def test_description_lists_assignments_and_targets_of_members() -> None:
    group = SmallGroup(image(a=2))
    join = ConsumerGroupHeartbeat("g", "m", 0, "c", "/h", "i", "rack", 9, ["a"], None, "range", [])
    group.send(join)
    group.joined("n", None, pattern="a")

    found = group.group.describe()

    assert (found.error, found.group_id, found.state, found.assignor) == (ErrorCode.NONE, "g", "Reconciling", "range")
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    m, n = found.members
    assert m[:8] == ("m", "i", "rack", 1, "c", "/h", ("a",), None)
    assert m.assignment == [NamedTopicPartitions(topic_id("a"), "a", [0, 1])]
    assert m.target == [NamedTopicPartitions(topic_id("a"), "a", [0])]
    assert (n.member_id, n.member_epoch, n.topic_names, n.topic_pattern) == ("n", 2, (), "a")
    assert n.assignment == []
    assert n.target == [NamedTopicPartitions(topic_id("a"), "a", [1])]


def test_description_leaves_out_topics_that_are_gone() -> None:
    group = SmallGroup(image(a=1, b=1))
    group.joined("m", ["a", "b"])
    group.topics = image(b=1)
    (m,) = group.group.describe().members
    assert [part.topic for part in m.assignment] == ["b"]


def test_states_are_returned_by_their_names() -> None:
    group = SmallGroup(image(a=2))
    assert group.group.state_name == "Empty"
    group.joined("m")
    assert group.group.state_name == "Stable"
    group.joined("n")
    group.beat("m", 1)
    assert group.group.state_name == "Reconciling"
    group.leave("n")
    assert group.group.state_name == "Assigning"
    group.leave("m")
    assert group.group.state_name == "Empty"


def test_history_lists_joins_moves_and_leaves() -> None:
    group = SmallGroup(image(a=2))
    group.joined("m")
    group.joined("n")
    group.beat("m", 1)
    group.leave("n")
    told = "\n".join(group.group.history.as_fact().lines)
    for part in (
        "member.joined member=m",
        "epoch.raised group_epoch=2",
        "UNREVOKED_PARTITIONS",
        "member.left member=n",
    ):
        assert part in told
