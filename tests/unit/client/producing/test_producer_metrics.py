"""What a producer counts, on brokers in memory."""

from __future__ import annotations

import pytest

from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.producing.settings import ProducerSettings
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, OttlaError
from ottla.records.compression import Codec
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.producing.sending import Sending


def fake_cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.add_topic("clicks", 1)
    return fake


def metrics(sending: Sending) -> ProducerMetrics:
    with sending.monitor.lock:
        return sending.engine.metrics()


def test_messages_and_batches_are_counted_when_they_are_stored() -> None:
    sending = Sending(fake_cluster())
    sending.send_set("clicks", [b"x" * 100] * 30, keys=[b"key"] * 30)
    before = metrics(sending)
    assert (before.messages_stored_count, before.unsettled_batches_count) == (0, 1)
    assert before.buffered_bytes > 0
    sending.flush()
    after = metrics(sending)
    assert (after.messages_stored_count, after.batches_stored_count, after.batches_count) == (30, 1, 1)
    assert (after.unsettled_batches_count, after.buffered_bytes) == (0, 0)
    assert after.messages_bytes == 30 * 103
    assert 1.0 < after.compression_ratio < 1.2
    assert after.requests.latencies["PRODUCE"].count == 1


def test_the_compression_ratio_is_that_of_what_was_sent() -> None:
    sending = Sending(fake_cluster(), ProducerSettings(compression=Codec.GZIP))
    for _ in range(100):
        sending.send("clicks", b"x" * 100)
    sending.flush()
    found = metrics(sending)
    assert found.messages_bytes == 10_000
    assert 0 < found.compression_ratio < 0.2


def test_failures_and_their_codes_are_counted() -> None:
    fake = fake_cluster()
    sending = Sending(fake)
    fake.brokers[1].error_of = lambda api, partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    delivery = sending.send("clicks", b"x", partition=0)
    sending.flush()
    with pytest.raises(OttlaError):
        delivery.wait(0)
    found = metrics(sending)
    assert (found.messages_failed_count, found.batches_failed_count, found.messages_stored_count) == (1, 1, 0)
    assert found.requests.errors == {"TOPIC_AUTHORIZATION_FAILED": 1}


def test_statistics_are_reported_in_their_interval() -> None:
    found: list[ProducerMetrics] = []
    fake = fake_cluster()
    sending = Sending(fake, ProducerSettings(statistics_interval_ms=500, on_statistics=found.append))
    sending.send("clicks", b"x")
    sending.flush()
    began_ms = fake.clock.monotonic_ms()
    while len(found) < 3:
        sending.engine.turn()
    assert fake.clock.monotonic_ms() - began_ms == pytest.approx(1_500, abs=100)
    assert found[-1].messages_stored_count == 1


def test_a_callback_of_statistics_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(found: ProducerMetrics) -> None:
        raise ValueError("of the callback")

    fake = fake_cluster()
    sending = Sending(fake, ProducerSettings(statistics_interval_ms=10, on_statistics=fail))
    fake.clock.advance(10)
    sending.engine.turn()
    delivery = sending.send("clicks", b"x")
    sending.flush()
    assert delivery.wait(0).offset == 0
    assert "on_statistics has failed" in caplog.text


@pytest.mark.parametrize("given", [{"statistics_interval_ms": 0}, {"on_statistics": 7}])
def test_settings_of_statistics_that_cannot_be_used_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ProducerSettings(**given)  # type: ignore[arg-type]
