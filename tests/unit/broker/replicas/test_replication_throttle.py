"""The rate at which throttled replicas are fetched."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from ottla.broker.replicas.replication_throttle import DELAY_MS_MAX, ReplicationThrottle
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.identifiers import NodeId, TopicPartition

SELF = NodeId(3)
RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


def configs(replicas: str = "0:3,2:4,5:3", **rates: str) -> ConfigsView:
    """`broker_3="1000"`: the rate of broker 3; `every="1000"`: that of all."""
    settings = {ConfigEntity.topic("orders"): {REPLICAS: replicas}, ConfigEntity.topic("free"): {"segment.ms": "9"}}
    for name, rate in rates.items():
        node_id = None if name == "every" else NodeId(int(name.removeprefix("broker_")))
        settings[ConfigEntity.broker(node_id)] = {RATE: rate}
    return ConfigsView(1, MappingProxyType(settings))


def throttle(view: ConfigsView) -> ReplicationThrottle:
    made = ReplicationThrottle(SELF)
    made.configure(view, now_ms=0)
    return made


def held(made: ReplicationThrottle) -> list[int]:
    return [index for index in range(6) if made.holds(TopicPartition("orders", index))]


@pytest.mark.parametrize(
    ("replicas", "indexes"),
    [("0:3,2:4,5:3", [0, 5]), ("*", [0, 1, 2, 3, 4, 5]), ("1:4", []), ("", []), ("x:3,4:3,none", [4])],
)
def test_replicas_of_this_broker_that_are_named_are_throttled(replicas: str, indexes: list[int]) -> None:
    made = throttle(configs(replicas, broker_3="1000"))
    assert held(made) == indexes
    assert made.is_on is bool(indexes)
    assert not made.holds(TopicPartition("free", 0))


def test_nothing_is_throttled_without_a_rate() -> None:
    made = throttle(configs(broker_4="1000"))
    assert not made.is_on
    assert held(made) == []
    made.take(10**9)
    assert made.delay_ms(0) == 0
    assert made.fetch_bytes_max(1 << 20) == 1 << 20


def test_rate_of_the_broker_wins_over_that_of_all() -> None:
    assert throttle(configs(every="1000")).fetch_bytes_max(1 << 20) == 1000
    assert throttle(configs(every="1000", broker_3="500")).fetch_bytes_max(1 << 20) == 500


def test_fetches_wait_until_the_average_is_kept_again() -> None:
    made = throttle(configs(broker_3="1000"))
    assert made.delay_ms(0) == 0
    made.take(500)
    delay_ms = made.delay_ms(0)
    assert 500 <= delay_ms <= 502
    assert made.delay_ms(delay_ms) == 0


def test_rate_is_kept_over_a_long_time_and_never_passed_by_more_than_one_answer() -> None:
    made = throttle(configs(broker_3="10000"))
    fetched = now_ms = 0
    for number in range(1_000):
        now_ms += made.delay_ms(now_ms)
        while made.delay_ms(now_ms):
            now_ms += made.delay_ms(now_ms)
        made.take(size := 137 * (number % 40))
        fetched += size
        assert fetched <= 10 * now_ms + 10_000
    assert fetched >= 10 * now_ms - 2 * 137 * 40


def test_time_without_fetches_is_not_made_up_for() -> None:
    made = throttle(configs(broker_3="1000"))
    assert made.delay_ms(3_600_000) == 0
    made.take(2_000)
    assert made.delay_ms(3_600_000) == DELAY_MS_MAX


def test_other_rate_is_in_force_within_a_second() -> None:
    made = throttle(configs(broker_3="0"))
    made.take(10**9)
    assert made.delay_ms(1) == DELAY_MS_MAX
    made.configure(configs(), now_ms=2)
    assert made.delay_ms(2) == 0
    made.configure(configs(broker_3="1000"), now_ms=3)
    assert made.delay_ms(3) == 0, "it starts again"
