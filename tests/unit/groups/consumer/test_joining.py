"""Joining a consumer group, staying in it, and what a request must look like."""

from __future__ import annotations

import pytest

from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, names_of, owned


@pytest.fixture
def group() -> SmallGroup:
    return SmallGroup(image(a=4, b=2))


def test_first_member_gets_everything_with_the_answer_to_its_join(group: SmallGroup) -> None:
    reply = group.join("m")
    assert (reply.error, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == (0, "m", 1, 5_000)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1", "a-2", "a-3"}
    assert group.group.state_name == "Stable"


def test_heartbeat_that_changes_nothing_logs_nothing_and_returns_no_assignment(group: SmallGroup) -> None:
    epoch = group.joined("m")
    records_count = len(group.log)
    reply = group.beat("m", epoch)
    assert (reply.error, reply.member_epoch, reply.assignment) == (0, 1, None)
    assert len(group.log) == records_count


def test_full_heartbeat_gets_its_assignment(group: SmallGroup) -> None:
    group.joined("m")
    reply = group.beat("m", 1, topics=["a"], owned=owned("a-0"), rebalance_timeout_ms=30_000)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1", "a-2", "a-3"}


@pytest.mark.parametrize("missing", ["topics", "owned", "rebalance_timeout_ms"])
def test_incomplete_heartbeat_does_not_get_its_assignment(group: SmallGroup, missing: str) -> None:
    group.joined("m")
    said = {"topics": ["a"], "owned": owned("a-0"), "rebalance_timeout_ms": 30_000}
    del said[missing]
    assert group.beat("m", 1, **said).assignment is None  # type: ignore[arg-type]  # types differ by name


def test_newcomer_waits_until_the_owner_has_given_up_its_share(group: SmallGroup) -> None:
    group.joined("m")
    newcomer = group.join("n")
    assert (newcomer.member_epoch, newcomer.assignment) == (2, ())

    told = group.beat("m", 1)
    assert told.member_epoch == 1, "it stays at its old epoch until it has given up what it must"
    assert told.assignment is not None
    assert names_of(told.assignment) == {"a-0", "a-1"}
    assert group.beat("n", 2).assignment is None
    assert group.beat("m", 1).assignment is None, "it is sent once"
    assert group.beat("m", 1, owned=owned("a-0", "a-1", "a-3")).member_epoch == 1, "it still holds one"
    assert group.group.state_name == "Reconciling"

    assert group.beat("m", 1, owned=owned("a-0", "a-1")).member_epoch == 2
    given = group.beat("n", 2)
    assert given.assignment is not None
    assert names_of(given.assignment) == {"a-2", "a-3"}
    assert group.group.state_name == "Stable"


def test_member_gets_back_at_once_what_it_has_just_given_up_when_the_newcomer_has_gone(group: SmallGroup) -> None:
    group.joined("m")
    group.joined("n")
    group.beat("m", 1)
    group.leave("n")
    reply = group.beat("m", 1, owned=owned("a-0", "a-1"))
    assert reply.member_epoch == 3
    assert names_of(reply.assignment or ()) == {"a-0", "a-1", "a-2", "a-3"}


def test_new_member_gets_free_partitions_at_once_and_the_rest_when_they_become_free(group: SmallGroup) -> None:
    group.joined("m")
    group.topics = image(a=6, b=2)
    reply = group.join("n")
    # The two new partitions and one of m's.
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-4", "a-5"}
    assert group.target("n") == {"a-3", "a-4", "a-5"}
    group.beat("m", 1)
    group.beat("m", 1, owned=owned("a-0", "a-1", "a-2"))
    reply = group.beat("n", 2)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-3", "a-4", "a-5"}


def test_member_with_nothing_to_give_up_moves_to_the_new_epoch_at_once(group: SmallGroup) -> None:
    group.joined("m", ["a"])
    group.joined("n", ["b"])
    reply = group.beat("m", 1)
    assert (reply.member_epoch, reply.assignment) == (2, None)


def test_member_that_reports_a_revocation_early_skips_the_wait(group: SmallGroup) -> None:
    group.joined("m")
    group.joined("n")
    reply = group.beat("m", 1, owned=owned("a-0"))
    assert reply.member_epoch == 2
    assert group.assigned("m") == {"a-0", "a-1"}


def test_member_that_changes_its_topics_raises_the_epoch(group: SmallGroup) -> None:
    group.joined("m", ["a"])
    reply = group.beat("m", 1, topics=["b", "a", "a"])
    assert reply.member_epoch == 2
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1", "a-2", "a-3", "b-0", "b-1"}
    assert group.group.read_among({"b"}) == {"b"}


def test_member_that_repeats_its_topics_in_another_order_changes_nothing(group: SmallGroup) -> None:
    group.joined("m", ["a", "b"])
    records_count = len(group.log)
    assert group.beat("m", 1, topics=["b", "a"]).member_epoch == 1
    assert len(group.log) == records_count


def test_member_that_drops_a_topic_gives_it_up_before_it_moves_on(group: SmallGroup) -> None:
    group.joined("m", ["a", "b"])
    reply = group.beat("m", 1, topics=["b"])
    assert reply.member_epoch == 1
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"b-0", "b-1"}
    assert group.beat("m", 1, owned=owned("b-0", "b-1")).member_epoch == 2


def test_member_may_subscribe_to_nothing(group: SmallGroup) -> None:
    group.joined("m")
    reply = group.join("idle", [])
    assert (reply.error, reply.member_epoch, reply.assignment) == (0, 1, ())
    assert group.beat("m", 1).member_epoch == 1, "no member is disturbed"


def test_topic_that_does_not_exist_is_assigned_when_it_is_made(group: SmallGroup) -> None:
    reply = group.join("m", ["later"])
    assert (reply.member_epoch, reply.assignment) == (1, ())
    group.topics = image(later=1)
    reply = group.beat("m", 1)
    assert reply.member_epoch == 2
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"later-0"}


def test_client_and_assignor_are_kept_without_a_new_epoch(group: SmallGroup) -> None:
    group.joined("m")
    reply = group.send(ConsumerGroupHeartbeat("g", "m", 1, "renamed", "/10.0.0.1", server_assignor="range"))
    assert reply.member_epoch == 1
    metadata = group.group.state.members["m"]
    assert (metadata.client_id, metadata.client_host, metadata.server_assignor) == ("renamed", "/10.0.0.1", "range")


def test_assignor_that_most_members_request_is_used(group: SmallGroup) -> None:
    group.topics = image(a=5)
    group.joined("m", assignor="range")
    assert group.group.describe().assignor == "range"
    group.joined("n", assignor="uniform")
    assert group.group.describe().assignor == "uniform", "a tie is decided by the broker's own order"
    group.joined("o", assignor="range")
    assert [group.target(member) for member in "mno"] == [{"a-0", "a-1"}, {"a-2", "a-3"}, {"a-4"}]


def test_assignor_that_a_member_requests_now_counts_and_not_its_former_one(group: SmallGroup) -> None:
    group.joined("z", assignor="uniform")
    group.joined("a")
    assert group.target("z") == {"a-0", "a-1"}
    group.beat("z", 1, topics=["a", "b"], assignor="range")
    assert group.target("a") == {"a-0", "a-1"}, "by id, as range does"


def test_broker_makes_the_member_id_for_a_client_of_v0(group: SmallGroup) -> None:
    command = ConsumerGroupHeartbeat("g", "", 0, "c", "/h", None, None, 1, ["a"], None, None, [], makes_own_id=False)
    assert group.send(command).member_id == "c-1"
    assert group.send(command).member_id == "c-2"


def test_full_group_refuses_members(group: SmallGroup) -> None:
    group = SmallGroup(image(a=4), GroupSettings(consumer_max_size=1))
    group.joined("m")
    assert group.join("n").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("m", 1).error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rebalance_timeout_ms": -1}, "must send its rebalance time-out"),
        ({"owned": None}, "must send an empty list of owned partitions"),
        ({"owned": owned("a-0")}, "must send an empty list of owned partitions"),
        ({"topic_names": None}, "must subscribe"),
        ({"member_id": " "}, "member id is empty"),
        ({"member_id": "", "member_epoch": 1, "makes_own_id": False}, "member id is empty"),
        ({"member_id": "", "member_epoch": -1, "makes_own_id": False}, "member id is empty"),
        ({"group_id": ""}, "group id is empty"),
        ({"instance_id": ""}, "instance id is empty"),
        ({"rack_id": " "}, "rack id is empty"),
        ({"member_epoch": -2}, "needs an instance id"),
        ({"member_epoch": -3}, "means nothing"),
    ],
)
def test_request_that_is_not_whole_is_refused(group: SmallGroup, changes: dict[str, object], problem: str) -> None:
    join = ConsumerGroupHeartbeat("g", "m", 0, "c", "/h", None, None, 1, ["a"], None, None, [])
    reply = group.send(join._replace(**changes))  # type: ignore[arg-type]  # names and types are in the table
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert reply.message is not None
    assert problem in reply.message
    assert group.log == []


def test_assignor_that_the_broker_does_not_have_is_refused(group: SmallGroup) -> None:
    reply = group.join("m", assignor="cooperative-sticky")
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert reply.message is not None
    assert "uniform, range" in reply.message
    only_range = SmallGroup(image(a=1), GroupSettings(consumer_assignors=("range",)))
    assert only_range.join("m", assignor="uniform").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert only_range.join("m").error is ErrorCode.NONE


def test_group_without_a_join_is_not_found(group: SmallGroup) -> None:
    assert group.beat("m", 1).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.leave("m").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not group.group.has_records
    assert group.group.is_forgettable


def test_names_too_long_for_a_record_are_refused_and_nothing_is_logged(group: SmallGroup) -> None:
    assert group.join("m" * 40_000).error is ErrorCode.INVALID_REQUEST
    assert group.log == []
