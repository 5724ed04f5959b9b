"""Committed offsets are counted in memory over all shards, and bounded."""

from __future__ import annotations

import pytest

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


def test_at_the_bound_only_what_is_there_is_committed_again(
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


def test_offsets_count_for_the_first_network_that_commits_after_a_restart(coordinator: Coordinator) -> None:
    coordinator.commit({0: 1}, group_id="team")
    coordinator.restart()
    held = coordinator.offset_bytes
    assert held.largest_network == ("", 0)
    assert held.held_bytes > 0
    coordinator.commit({0: 2}, group_id="team", host="/192.0.2.2")
    assert held.largest_network == ("192.0.2.2", held.held_bytes)
    coordinator.commit({0: 3}, group_id="team", host="/192.0.2.3")
    assert held.largest_network == ("192.0.2.2", held.held_bytes)
    coordinator.delete("team")
    assert (held.held_bytes, held.largest_network) == (0, ("", 0))


def test_restart_leaves_room_to_a_network_that_commits_for_the_first_time(coordinator: Coordinator) -> None:
    coordinator.offset_bytes.limit_bytes = 100_000
    commit_groups(coordinator, "/192.0.2.1", 30)
    coordinator.restart()
    coordinator.offset_bytes.limit_bytes = 100_000
    commit_groups(coordinator, "/192.0.2.1", 60)
    assert coordinator.commit_errors({0: 1}, group_id="mine", host="/192.0.2.2") == {NONE}
