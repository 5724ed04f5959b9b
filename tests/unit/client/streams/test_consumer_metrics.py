"""What a consumer counts, without threads."""

from __future__ import annotations

import pytest

from ottla.client.streams.consumer_metrics import ConsumerMetrics, PartitionMetrics
from ottla.client.streams.settings import StreamSettings
from ottla.client.wire.request_metrics import RequestMeter
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from tests.unit.client.streams.scripted import Desk

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def metrics(desk: Desk) -> ConsumerMetrics:
    return desk.engine.metrics(RequestMeter.snapshot([]))


def test_batches_are_counted_when_they_are_handed_out_and_bytes_that_wait_before() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a", b"b", b"c"])
    before = metrics(desk)
    assert (before.messages_count, before.batches_count) == (0, 0)
    assert before.buffered_bytes > 0
    assert [message.value for message in desk.streams[0]] == [b"a", b"b", b"c"]
    after = metrics(desk)
    assert (after.messages_count, after.batches_count, after.buffered_bytes) == (3, 1, 0)
    assert after.batches_bytes == before.buffered_bytes


def test_the_lag_of_a_partition_is_what_the_position_lacks_to_the_end_of_the_log() -> None:
    desk = Desk()
    desk.start(0, 5)
    assert metrics(desk).partitions == {T0: PartitionMetrics(5, None)}
    assert metrics(desk).partitions[T0].lag is None
    desk.bring(0, [b"a", b"b", b"c"])
    stream = iter(desk.streams[0])
    next(stream)
    assert metrics(desk).partitions[T0].lag == 2
    next(stream), next(stream)
    assert metrics(desk).partitions[T0].lag == 0


def test_a_partition_that_was_given_back_is_not_counted_any_more() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.start(1, 0)
    desk.revoke(0, claim)
    assert list(metrics(desk).partitions) == [T1]


def test_a_position_that_is_not_known_has_no_lag() -> None:
    assert PartitionMetrics(None, 7).lag is None
    assert PartitionMetrics(9, 7).lag == 0, "a read to the end, and a fetch that was answered before"


@pytest.mark.parametrize("given", [{"statistics_interval_ms": 0}, {"on_statistics": 7}])
def test_settings_of_statistics_that_cannot_be_used_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        StreamSettings(**given)  # type: ignore[arg-type]
