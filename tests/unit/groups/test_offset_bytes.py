"""Committed offsets are counted in memory over all shards, and bounded."""

from __future__ import annotations

import pytest

from ottla.groups import group_table
from ottla.groups.commands import DeleteGroup, TopicPartitions
from ottla.groups.replies import CommitReply, CommittedOffset, FetchReply
from ottla.groups.shared_bytes import OFFSET_BYTES_MAX
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, TOPIC, Coordinator

TOO_MUCH, NONE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.NONE


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def committed(coordinator: Coordinator, offsets: dict[int, int], metadata: str = "") -> list[ErrorCode]:
    return list(coordinator.commit(offsets, metadata=metadata).of(CommitReply).errors)


def test_what_groups_hold_is_counted_and_given_back(coordinator: Coordinator) -> None:
    held = coordinator.offset_bytes
    assert held.held_bytes == 0
    committed(coordinator, {0: 1})
    first = held.held_bytes
    assert 1_000 < first < 3_000
    committed(coordinator, {0: 2})
    assert held.held_bytes == first, "it was committed again"
    committed(coordinator, {0: 3}, metadata="x" * 1_000)
    assert held.held_bytes == first + 1_000
    committed(coordinator, {0: 4, 1: 4})
    assert 0 < held.held_bytes - first < 300
    coordinator.ask(DeleteGroup(GROUP))
    assert held.held_bytes == 0


def test_shard_that_leaves_gives_everything_back(coordinator: Coordinator) -> None:
    committed(coordinator, {0: 1, 1: 1})
    coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
    assert coordinator.offset_bytes.held_bytes == 0


def test_at_the_bound_only_existing_offsets_are_committed_again(
    coordinator: Coordinator,
) -> None:
    committed(coordinator, {0: 1})
    coordinator.offset_bytes.limit_bytes = coordinator.offset_bytes.held_bytes
    assert committed(coordinator, {0: 2, 1: 2}) == [NONE, TOO_MUCH]
    assert committed(coordinator, {0: 3}, metadata="more") == [TOO_MUCH]
    found = coordinator.ask_committed(topics=[TopicPartitions(TOPIC, [0, 1])]).of(FetchReply)
    assert [each.offset for each in found.topics[0].partitions] == [2, CommittedOffset(1).offset]
    coordinator.offset_bytes.limit_bytes = OFFSET_BYTES_MAX
    assert committed(coordinator, {1: 2}) == [NONE]


LARGE = "x" * 4_000


def commit_groups(coordinator: Coordinator, host: str, count: int) -> list[ErrorCode]:
    return [
        error
        for number in range(count)
        for error in coordinator.commit_errors({0: 1}, metadata=LARGE, group_id=f"{host}-{number}", host=host)
    ]


def test_client_of_another_network_commits_after_one_has_taken_all_that_it_may(coordinator: Coordinator) -> None:
    coordinator.offset_bytes.limit_bytes = 100_000
    assert TOO_MUCH in commit_groups(coordinator, "/192.0.2.1", 30)
    assert coordinator.commit_errors({0: 1}, group_id="mine", host="/192.0.2.2") == {NONE}
    assert coordinator.offset_bytes.refused_count > 0
    assert coordinator.offset_bytes.largest_network[0] == "192.0.2.1"


def test_one_group_leaves_room_to_others(coordinator: Coordinator) -> None:
    coordinator.offset_bytes.limit_bytes = 100_000
    errors = [coordinator.commit_errors({n: 1}, metadata=LARGE, host=f"/192.0.2.{n}") for n in range(30)]
    assert errors[-1] == {TOO_MUCH}
    assert coordinator.commit_errors({0: 1}, group_id="mine") == {NONE}


def test_offsets_of_before_a_restart_count_for_no_network_and_later_ones_for_those_that_add_them(
    coordinator: Coordinator,
) -> None:
    coordinator.commit({0: 1}, group_id="team")
    coordinator.restart()
    held = coordinator.offset_bytes
    before_bytes = held.held_bytes
    assert held.largest_network == ("", 0)
    assert before_bytes > 0
    coordinator.commit({0: 2}, group_id="team", host="/192.0.2.2")
    assert (held.held_bytes, held.largest_network) == (before_bytes, ("", 0)), "it added nothing"
    coordinator.commit({1: 2}, metadata="x" * 500, group_id="team", host="/192.0.2.2")
    added_bytes = held.held_bytes - before_bytes
    assert held.largest_network == ("192.0.2.2", added_bytes)
    coordinator.commit({2: 3}, metadata="x" * 1_000, group_id="team", host="/192.0.2.3")
    assert held.held_by("192.0.2.2") == added_bytes
    assert held.held_by("192.0.2.3") == held.held_bytes - before_bytes - added_bytes
    coordinator.commit({2: 3}, group_id="team", host="/192.0.2.3")
    assert 0 < held.held_by("192.0.2.3") < added_bytes
    coordinator.delete("team")
    assert (held.held_bytes, held.largest_network, held.held_by("192.0.2.3")) == (0, ("", 0), 0)


def test_commit_that_adds_nothing_counts_for_no_network_whether_its_place_is_remembered_or_not(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_table, "PLACES_MAX", 1)
    for group_id in ("first", "second"):
        coordinator.commit({0: 1}, group_id=group_id)
    coordinator.restart()
    for group_id in ("first", "second"):
        assert coordinator.commit_errors({0: 2}, group_id=group_id, host="/192.0.2.7") == {NONE}
    assert coordinator.offset_bytes.largest_network == ("", 0)


def test_client_is_not_charged_for_what_another_one_adds_to_its_group(coordinator: Coordinator) -> None:
    held = coordinator.offset_bytes
    coordinator.commit({0: 1}, group_id="mine", host="/192.0.2.1")
    own_bytes = held.held_by("192.0.2.1")
    assert own_bytes == held.held_bytes
    coordinator.commit({1: 1}, metadata=LARGE, group_id="mine", host="/192.0.2.2")
    assert held.held_by("192.0.2.1") == own_bytes
    assert held.held_by("192.0.2.2") == held.held_bytes - own_bytes > len(LARGE)


def test_client_that_commits_to_a_large_group_of_before_a_restart_keeps_its_share(coordinator: Coordinator) -> None:
    for number in range(10):
        coordinator.commit_errors({number: 1}, metadata=LARGE, group_id="old")
    coordinator.restart()
    coordinator.offset_bytes.limit_bytes = 3 * coordinator.offset_bytes.held_bytes // 2
    assert coordinator.commit_errors({0: 2}, metadata=LARGE, group_id="old", host="/192.0.2.7") == {NONE}
    assert coordinator.commit_errors({0: 2}, group_id="mine", host="/192.0.2.7") == {NONE}


def test_restart_leaves_room_to_a_network_that_commits_for_the_first_time(coordinator: Coordinator) -> None:
    coordinator.offset_bytes.limit_bytes = 100_000
    commit_groups(coordinator, "/192.0.2.1", 30)
    coordinator.restart()
    coordinator.offset_bytes.limit_bytes = 100_000
    commit_groups(coordinator, "/192.0.2.1", 60)
    assert coordinator.commit_errors({0: 1}, group_id="mine", host="/192.0.2.2") == {NONE}
