"""The quotas of a broker: bounded throttles, and what is counted of them."""

from __future__ import annotations

from ottla.broker.quotas.quota_limits import Limit
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.testing.fake_clock import FakeClock

WINDOW = Window(11, 1_000)


def quotas(clock: FakeClock) -> Quotas:
    return Quotas(QuotaUsage(WINDOW, WINDOW), clock, 1_000)


def limit(kind: QuotaKind, value: float) -> Limit:
    entity = QuotaEntity("alice")
    return Limit(kind, value, entity, entity)


def test_bytes_are_throttled_for_as_long_as_it_takes() -> None:
    assert quotas(FakeClock()).record(limit(QuotaKind.PRODUCER_BYTE_RATE, 1), 1_000) == 990_000


def test_request_time_is_throttled_for_one_sample_at_a_time() -> None:
    assert quotas(FakeClock()).record(limit(QuotaKind.REQUEST_PERCENTAGE, 1), 1_000) == 1_000


def test_throttled_connection_is_not_counted() -> None:
    of, rate = quotas(FakeClock()), limit(QuotaKind.CONNECTION_CREATION_RATE, 1)
    assert [of.take_connection(rate) > 0 for _ in range(12)] == [False] * 10 + [True] * 2
    # As many as were accepted: eleven would be above it.
    assert of.throttle_ms(rate) == 0


def test_longest_throttle_of_a_request_is_counted() -> None:
    of = quotas(FakeClock())
    assert of.count_throttle({QuotaKind.PRODUCER_BYTE_RATE: 70, QuotaKind.REQUEST_PERCENTAGE: 30}) == 70
    assert of.throttled_ms == {QuotaKind.PRODUCER_BYTE_RATE: 70}
    assert of.throttled_count == {QuotaKind.PRODUCER_BYTE_RATE: 1}
