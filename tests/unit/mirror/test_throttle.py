from __future__ import annotations

import pytest

from ottla.mirror.copier import ROOM_BYTES_MAX, Throttle
from ottla.model.identifiers import TopicPartition
from ottla.testing.fake_clock import FakeClock

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


def read_for(throttle: Throttle, clock: FakeClock, duration_ms: int, batch_bytes: int) -> int:
    """The bytes that a reader gets which asks every 20 ms, and takes whole batches."""
    got_bytes = 0
    for at in range(duration_ms // 20):
        partition = PARTITIONS[at % len(PARTITIONS)]
        if throttle.reserve(partition):
            throttle.on_landed(partition, batch_bytes)
            got_bytes += batch_bytes
        clock.advance(20)
    return got_bytes


@pytest.mark.parametrize("batch_bytes", [10_000, 900_000, 5_000_000])
@pytest.mark.parametrize("rate_bytes_s", [30_000, 1_000_000])
def test_average_stays_at_the_rate_for_batches_of_any_size(rate_bytes_s: int, batch_bytes: int) -> None:
    clock = FakeClock()
    throttle = Throttle(rate_bytes_s, clock)
    got_bytes = read_for(throttle, clock, 600_000, batch_bytes)
    burst = max(rate_bytes_s, 64 * 1024) + batch_bytes
    assert got_bytes <= 600 * rate_bytes_s + burst
    assert got_bytes >= min(600 * rate_bytes_s, 30_000 * batch_bytes) * 0.9 - burst


def test_without_a_rate_there_is_always_room() -> None:
    throttle = Throttle(None, FakeClock())
    for _ in range(100):
        assert throttle.reserve(PARTITIONS[0]) == ROOM_BYTES_MAX
        throttle.on_landed(PARTITIONS[0], ROOM_BYTES_MAX)


def test_fetch_that_brought_nothing_costs_nothing() -> None:
    throttle = Throttle(1_000_000, FakeClock())
    for _ in range(100):
        assert throttle.reserve(PARTITIONS[0]) == 1_000_000
        throttle.on_landed(PARTITIONS[0], 0)
