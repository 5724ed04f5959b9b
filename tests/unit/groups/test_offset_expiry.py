from __future__ import annotations

from uuid import UUID

import pytest

from ottla.groups import offset_requests
from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.replies import ConsumerGroupHeartbeatReply, JoinReply
from ottla.groups.settings import GroupSettings
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, TOPIC, Coordinator

HOUR_MS = 3_600_000
CHECK_MS = 60_000
OTHER = "payments"


def new_coordinator(*topics: str) -> Coordinator:
    settings = GroupSettings(offsets_retention_ms=HOUR_MS, offsets_retention_check_interval_ms=CHECK_MS)
    image = TopicsImage.of(TopicImage(name, UUID(int=number + 1), 4) for number, name in enumerate(topics))
    return Coordinator(settings, image)


def test_offsets_of_a_simple_consumer_expire_by_their_own_time() -> None:
    coordinator = new_coordinator()
    coordinator.commit({0: 5})
    coordinator.pass_ms(HOUR_MS // 2)
    coordinator.commit({1: 6})
    coordinator.pass_ms(HOUR_MS // 2 + CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 1): 6}
    coordinator.pass_ms(HOUR_MS // 2 + CHECK_MS)
    assert coordinator.state() == "Dead"
    coordinator.restart()
    assert coordinator.state() == "Dead"


def test_offsets_of_a_group_with_members_never_expire() -> None:
    coordinator = new_coordinator()
    (joined,) = coordinator.stable_group(1, session_timeout_ms=1_800_000)
    coordinator.commit({0: 5}, joined)
    for _ in range(4):
        coordinator.pass_ms(HOUR_MS // 3)
        assert coordinator.heartbeat(joined) is ErrorCode.NONE
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_offsets_of_an_emptied_group_expire_after_the_whole_period_without_members() -> None:
    coordinator = new_coordinator()
    (joined,) = coordinator.stable_group(1, session_timeout_ms=1_800_000)
    coordinator.commit({0: 5}, joined)
    for _ in range(4):
        coordinator.pass_ms(HOUR_MS // 3)
        coordinator.heartbeat(joined)
    coordinator.leave((joined.member_id, None))
    coordinator.pass_ms(HOUR_MS - CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    coordinator.pass_ms(2 * CHECK_MS)
    assert coordinator.committed() == {}
    assert coordinator.state() == "Dead"


def test_time_of_becoming_empty_survives_a_restart() -> None:
    coordinator = new_coordinator()
    (joined,) = coordinator.stable_group(1)
    coordinator.commit({0: 5}, joined)
    coordinator.leave((joined.member_id, None))
    coordinator.pass_ms(HOUR_MS // 2)
    coordinator.restart()
    coordinator.pass_ms(HOUR_MS // 2 - CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    coordinator.pass_ms(2 * CHECK_MS)
    assert coordinator.state() == "Dead"


def test_offset_that_is_set_while_the_group_is_empty_lives_its_own_period() -> None:
    coordinator = new_coordinator()
    (joined,) = coordinator.stable_group(1)
    coordinator.commit({0: 5, 1: 5}, joined)
    coordinator.leave((joined.member_id, None))
    coordinator.pass_ms(HOUR_MS // 2)
    coordinator.commit({1: 0})
    coordinator.pass_ms(HOUR_MS // 2 + CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 1): 0}


def test_commit_may_say_how_long_it_is_kept() -> None:
    coordinator = new_coordinator()
    coordinator.commit({0: 5}, retention_ms=3 * CHECK_MS)
    coordinator.commit({1: 5}, retention_ms=4 * HOUR_MS)
    coordinator.restart()
    coordinator.pass_ms(4 * CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 1): 5}
    coordinator.pass_ms(2 * HOUR_MS)
    assert coordinator.committed() == {(TOPIC, 1): 5}


def test_empty_group_without_offsets_goes_at_the_next_check() -> None:
    coordinator = new_coordinator()
    (joined,) = coordinator.stable_group(1)
    coordinator.leave((joined.member_id, None))
    assert coordinator.state() == "Empty"
    coordinator.pass_ms(CHECK_MS)
    assert coordinator.state() == "Dead"
    assert coordinator.log.batches[-1][-1].value is None


def test_offsets_of_a_consumer_group_outlive_its_members_by_the_whole_period() -> None:
    coordinator = new_coordinator(TOPIC)

    def beat(epoch: int) -> int:
        command = ConsumerGroupHeartbeat(
            GROUP, "m", epoch, "c", "/h", rebalance_timeout_ms=60_000, topic_names=[TOPIC], owned=[]
        )
        reply = coordinator.ask(command).of(ConsumerGroupHeartbeatReply)
        assert reply.error is ErrorCode.NONE
        return reply.member_epoch

    epoch = beat(0)
    joined_at_ms = coordinator.monotonic_ms
    assert coordinator.commit_errors({0: 5}, JoinReply(ErrorCode.NONE, "m", epoch)) == {ErrorCode.NONE}
    while coordinator.monotonic_ms < joined_at_ms + 2 * HOUR_MS:
        coordinator.pass_ms(40_000)
        epoch = beat(epoch)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    beat(-1)
    coordinator.pass_ms(HOUR_MS - CHECK_MS)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    coordinator.pass_ms(3 * CHECK_MS)
    assert len(coordinator.shard) == 0


def test_expiry_that_the_log_refuses_is_tried_at_the_next_check() -> None:
    coordinator = new_coordinator()
    coordinator.commit({0: 5})
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
    coordinator.pass_ms(2 * HOUR_MS)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    coordinator.log.refuses_with = None
    coordinator.pass_ms(CHECK_MS)
    assert coordinator.state() == "Dead"


def test_check_is_done_in_slices_with_other_work_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "OFFSETS_PER_SLICE", 10)
    coordinator = new_coordinator()
    for number in range(30):
        coordinator.commit({0: 5, 1: 5}, group_id=f"group{number}")
    coordinator.pass_ms(HOUR_MS - CHECK_MS // 2)
    due_ms = coordinator.shard.next_due_ms()
    assert due_ms is not None
    coordinator.pass_ms(due_ms - coordinator.monotonic_ms - 1)
    coordinator.monotonic_ms += 1
    coordinator.wall_ms += 1
    slices_count = 0
    while len(coordinator.shard):
        coordinator.shard.on_time(coordinator.now)
        slices_count += 1
    assert 8 <= slices_count <= 12


def test_offsets_of_a_deleted_topic_are_gone_in_every_group() -> None:
    coordinator = new_coordinator(TOPIC, OTHER)
    coordinator.commit({0: 5}, group_id="one")
    coordinator.commit({0: 5}, group_id="two")
    coordinator.commit({0: 6}, group_id="two", topic=OTHER)
    without = TopicsImage.of([coordinator.topics.by_name[OTHER]])
    coordinator.shard.on_topics_changed(without, coordinator.now)
    assert coordinator.committed("one") == {}
    assert coordinator.committed("two") == {(OTHER, 0): 6}
    coordinator.restart()
    assert coordinator.committed("two") == {(OTHER, 0): 6}
    assert coordinator.state("one") == "Dead"


def test_recreated_topic_under_its_old_name_has_no_offsets() -> None:
    coordinator = new_coordinator(TOPIC)
    coordinator.commit({0: 5})
    again = TopicsImage.of([TopicImage(TOPIC, UUID(int=99), 4)])
    coordinator.shard.on_topics_changed(again, coordinator.now)
    assert coordinator.committed() == {}


def test_new_topics_and_more_partitions_touch_no_offsets() -> None:
    coordinator = new_coordinator(TOPIC)
    coordinator.commit({0: 5})
    more = TopicsImage.of([coordinator.topics.by_name[TOPIC]._replace(partitions_count=9)])
    coordinator.shard.on_topics_changed(more, coordinator.now)
    assert coordinator.committed() == {(TOPIC, 0): 5}
