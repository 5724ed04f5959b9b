"""Rates over samples, and buckets of tokens, by numbers that were measured at Apache Kafka or follow from them."""

from __future__ import annotations

from ottla.broker.quotas.rate import TokenBucket, Window, WindowedRate

KAFKA = Window(11, 1_000)


def test_first_amount_counts_over_ten_seconds_and_throttles_as_at_apache_kafka() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(40_108, 0)
    # Measured there: 40 kB at 2,000 B/s are throttled for 10,054 ms.
    assert rate.throttle_ms(2_000, 0) == 10_054


def test_rate_at_the_limit_does_not_throttle() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(20_000, 0)
    assert rate.per_second(0) == 2_000
    assert rate.throttle_ms(2_000, 0) == 0
    assert rate.throttle_ms(1_999, 0) > 0


def test_rate_is_at_the_limit_after_the_throttle() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(30_000, 0)
    throttle_ms = rate.throttle_ms(2_900, 0)
    assert throttle_ms == 345
    assert rate.throttle_ms(2_900, throttle_ms + 1_000) == 0


def test_sample_leaves_after_the_whole_window() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(1_000, 0)
    rate.record(500, 6_000)
    assert rate.per_second(10_999) > rate.per_second(11_000) == 50
    assert rate.per_second(17_000) == 0


def test_amounts_of_one_second_are_one_sample() -> None:
    rate = WindowedRate(KAFKA, 0)
    for now_ms in range(0, 1_000, 10):
        rate.record(1, now_ms)
    assert rate.per_second(999) == 100_000 / 10_999
    assert rate.per_second(11_000) == 0


def test_amount_that_was_taken_back_does_not_count() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(5_000, 0)
    rate.record(-5_000, 10)
    assert rate.per_second(10) == 0


def test_rate_is_idle_when_its_last_sample_is_old() -> None:
    rate = WindowedRate(KAFKA, 0)
    rate.record(1, 500)
    assert not rate.is_idle(11_499)
    assert rate.is_idle(11_500)


def test_bucket_allows_a_burst_of_a_whole_window_and_more_once() -> None:
    bucket = TokenBucket(KAFKA, 0)
    bucket.record(11, 1.0, 0)
    assert bucket.throttle_ms(1.0, 0) == 0
    bucket.record(3, 1.0, 0)
    assert bucket.throttle_ms(1.0, 0) == 3_000
    assert bucket.throttle_ms(1.0, 2_999) == 1
    assert bucket.throttle_ms(1.0, 3_000) == 0


def test_bucket_is_full_again_and_not_more() -> None:
    bucket = TokenBucket(KAFKA, 0)
    bucket.record(11, 1.0, 0)
    assert not bucket.is_idle(10_999)
    assert bucket.is_idle(11_000)
    bucket.record(12, 1.0, 1_000_000)
    assert bucket.throttle_ms(1.0, 1_000_000) == 1_000


def test_window_of_one_sample_is_measured_over_that_sample() -> None:
    rate = WindowedRate(Window(1, 1_000), 0)
    rate.record(100, 0)
    assert rate.per_second(0) == 100
