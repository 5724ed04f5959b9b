"""Committed offsets are counted in memory over all shards, and bounded."""

from __future__ import annotations

import pytest

from ottla.groups import offset_bytes
from ottla.groups.commands import DeleteGroup, TopicPartitions
from ottla.groups.offset_bytes import OFFSET_BYTES_MAX
from ottla.groups.replies import CommitReply, CommittedOffset, FetchReply
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
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(coordinator, {0: 1})
    monkeypatch.setattr(offset_bytes, "OFFSET_BYTES_MAX", coordinator.offset_bytes.held_bytes)
    assert committed(coordinator, {0: 2, 1: 2}) == [NONE, TOO_MUCH]
    assert committed(coordinator, {0: 3}, metadata="more") == [TOO_MUCH]
    found = coordinator.ask_committed(topics=[TopicPartitions(TOPIC, [0, 1])]).of(FetchReply)
    assert [each.offset for each in found.topics[0].partitions] == [2, CommittedOffset(1).offset]
    monkeypatch.setattr(offset_bytes, "OFFSET_BYTES_MAX", OFFSET_BYTES_MAX)
    assert committed(coordinator, {1: 2}) == [NONE]
