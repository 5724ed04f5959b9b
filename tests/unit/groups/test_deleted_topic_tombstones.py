"""Tombstones of deleted topics are written in slices, with the same result as at once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.groups import offset_requests
from ottla.groups.group_log import GroupRecord
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from tests.unit.groups.coordinator import TOPIC, Coordinator

OTHER = "parcels"
SLICE = 10
GROUPS = 8
PARTITIONS = 7


def image(*topics: tuple[str, int]) -> TopicsImage:
    return TopicsImage.of(TopicImage(name, UUID(int=number), PARTITIONS) for name, number in topics)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Eight groups have committed for seven partitions of each of two topics; the first topic is deleted."""
    monkeypatch.setattr(offset_requests, "TOMBSTONES_PER_SLICE", SLICE)
    coordinator = Coordinator(topics=image((TOPIC, 1), (OTHER, 2)))
    for number in range(GROUPS):
        for topic in (TOPIC, OTHER):
            coordinator.commit(dict.fromkeys(range(PARTITIONS), 5), topic=topic, group_id=f"group-{number}")
    coordinator.log.batches.clear()
    show(coordinator, image((OTHER, 2)))
    return coordinator


def show(coordinator: Coordinator, topics: TopicsImage) -> None:
    coordinator.shard.on_topics_changed(topics, coordinator.now)
    coordinator.topics = topics


def left(coordinator: Coordinator, group_id: str) -> set[tuple[str, int]]:
    """Topics and offsets, of any partition."""
    return {(topic, offset) for (topic, _), offset in coordinator.committed(group_id).items()}


def test_deletion_writes_nothing_itself_and_a_slice_at_a_time_after_it(coordinator: Coordinator) -> None:
    assert coordinator.log.batches == []
    assert coordinator.shard.next_due_ms() == coordinator.monotonic_ms
    coordinator.pass_ms(0)
    sizes = [len(batch) for batch in coordinator.log.batches]
    assert max(sizes) == SLICE
    assert sum(sizes) == GROUPS * PARTITIONS
    assert {record.value for record in coordinator.log.records()} == {None}
    for number in range(GROUPS):
        assert left(coordinator, f"group-{number}") == {(OTHER, 5)}
    due_ms = coordinator.shard.next_due_ms()
    assert due_ms is not None
    assert due_ms > coordinator.monotonic_ms


@pytest.mark.parametrize("slices_before", [0, 1, 3])
def test_offset_of_a_deleted_topic_is_not_returned(coordinator: Coordinator, slices_before: int) -> None:
    for _ in range(slices_before):
        coordinator.shard.on_time(coordinator.now)
    for number in range(GROUPS):
        assert left(coordinator, f"group-{number}") == {(OTHER, 5)}


@pytest.mark.parametrize("slices_before", [0, 1, 3])
def test_commit_for_a_recreated_topic_outlives_the_tombstones_of_the_old_one(
    coordinator: Coordinator, slices_before: int
) -> None:
    show(coordinator, image((TOPIC, 3), (OTHER, 2)))
    for _ in range(slices_before):
        coordinator.shard.on_time(coordinator.now)
    for number in range(GROUPS):
        coordinator.commit({0: 9}, group_id=f"group-{number}")
    coordinator.pass_ms(0)
    for number in range(GROUPS):
        assert left(coordinator, f"group-{number}") == {(TOPIC, 9), (OTHER, 5)}
        assert (TOPIC, 1) not in coordinator.committed(f"group-{number}")


def test_topic_deleted_again_loses_commits_made_between(coordinator: Coordinator) -> None:
    show(coordinator, image((TOPIC, 3)))
    coordinator.commit({0: 9}, group_id="group-0")
    show(coordinator, image())
    coordinator.pass_ms(0)
    assert len(coordinator.shard) == 0


def test_tombstones_that_the_log_refuses_are_written_later(coordinator: Coordinator) -> None:
    coordinator.log.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.pass_ms(0)
    assert coordinator.log.batches == []
    coordinator.log.refuses_with = None
    coordinator.pass_ms(offset_requests.RETRY_MS)
    assert len(list(coordinator.log.records())) == GROUPS * PARTITIONS


def test_disk_that_fails_under_a_slice_ends_it(coordinator: Coordinator) -> None:
    def append(records: Sequence[GroupRecord], now_ms: int, producer: object = None) -> int:
        coordinator.shard.fail_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")

    coordinator.log.append = append  # type: ignore[method-assign]  # the log of this test only
    coordinator.shard.on_time(coordinator.now)
    coordinator.shard.finish_tombstones(coordinator.now)
    (error,) = coordinator.commit_errors({0: 1})
    assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
