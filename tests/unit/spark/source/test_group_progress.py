"""A group's progress is shown where it can be; a coordinator that is away holds nothing up."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.errors import CallTimedOut
from ottla.model.identifiers import TopicPartition
from ottla.spark.options.connection import Connection
from ottla.spark.source.stream_reader import PAUSE_MS, GroupProgress
from ottla.testing.fake_clock import FakeClock

PLACE = TopicPartition("t", 0)


class AwayAdmin(GroupAdmin):
    def __init__(self) -> None:
        self.is_away = True
        self.asked = 0
        self.committed_offsets: dict[TopicPartition, int] = {}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.asked += 1
        if self.is_away:
            raise CallTimedOut("the coordinator does not answer")
        self.committed_offsets |= {place: committed.offset for place, committed in offsets.items()}


def test_a_coordinator_that_is_away_is_tried_again_after_a_pause() -> None:
    clock, admin = FakeClock(), AwayAdmin()
    progress = GroupProgress(Connection("localhost:9092"), "g", clock, admin)
    for offset in range(10):
        progress.commit({PLACE: offset})
    assert admin.asked == 1
    admin.is_away = False
    clock.advance(PAUSE_MS)
    progress.commit({PLACE: 10})
    progress.commit({PLACE: 11})
    assert admin.committed_offsets == {PLACE: 11}
    progress.close()
