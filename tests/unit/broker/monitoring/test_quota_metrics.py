"""What a scrape shows of quotas."""

from __future__ import annotations

from ottla.broker.monitoring.metrics import quota_metrics
from ottla.broker.quotas.quota_limits import Limit
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.observe.metrics import CollectorRegistry
from ottla.testing.fake_clock import FakeClock

WINDOW = Window(11, 1_000)


def scraped(quotas: Quotas) -> list[str]:
    registry = CollectorRegistry()
    registry.add(lambda: quota_metrics(quotas))
    return [line for line in "".join(registry.chunks()).splitlines() if not line.startswith("#")]


def test_throttled_requests_and_rates_are_shown() -> None:
    quotas = Quotas(QuotaUsage(WINDOW, WINDOW), FakeClock(), 1_000)
    of_alice = QuotaEntity("alice")
    quotas.record(Limit(QuotaKind.PRODUCER_BYTE_RATE, 100, of_alice, of_alice), 5_000)
    quotas.count_throttle({QuotaKind.PRODUCER_BYTE_RATE: 1_500, QuotaKind.REQUEST_PERCENTAGE: 0})
    assert scraped(quotas) == [
        'ottla_quota_throttled_requests_total{quota="producer_byte_rate"} 1',
        'ottla_quota_throttle_seconds_total{quota="producer_byte_rate"} 1.5',
        "ottla_quota_sharers 1",
        'ottla_quota_rate{quota="producer_byte_rate",user="alice",client_id="",ip=""} 500.0',
    ]


def test_number_of_rates_is_bounded() -> None:
    quotas = Quotas(QuotaUsage(WINDOW, WINDOW), FakeClock(), 1_000)
    every_client = QuotaEntity(None, "")
    for number in range(300):
        sharer = QuotaEntity(None, f"client-{number}")
        quotas.record(Limit(QuotaKind.PRODUCER_BYTE_RATE, 100, sharer, every_client), 1)
    assert len([line for line in scraped(quotas) if line.startswith("ottla_quota_rate")]) == 100
