"""Over any load a client gets what its quota allows, and is never throttled below it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.quotas.quota_limits import QuotaLimits
from ottla.broker.quotas.rate import TokenBucket, Window, WindowedRate
from ottla.model.quotas import DEFAULT_NAME, QuotaEntity, QuotaKind

WINDOW = Window(11, 1_000)
KIND = QuotaKind.PRODUCER_BYTE_RATE
AMOUNTS = st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 2_000)), min_size=1, max_size=60)
NAMES = st.sampled_from(["a", "b", DEFAULT_NAME])
OWNERS = st.builds(QuotaEntity, st.none() | NAMES, st.none() | NAMES).filter(lambda entity: entity != QuotaEntity())


@given(AMOUNTS, st.integers(100, 5_000))
def test_client_that_obeys_its_throttles_is_bounded(amounts: list[tuple[int, int]], limit: int) -> None:
    rate, now_ms, used = WindowedRate(WINDOW, 0), 0, 0
    for amount, pause_ms in amounts:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        used += amount
        # As at Apache Kafka: an amount that is larger than two windows allow is forgotten with its sample, before the
        # time that it would take at the limit is over.
        assert used <= 2 * limit * (now_ms + WINDOW.length_ms) / 1_000 + amount
        now_ms += rate.throttle_ms(limit, now_ms)


@given(AMOUNTS)
def test_client_below_its_limit_is_never_throttled(amounts: list[tuple[int, int]]) -> None:
    rate, now_ms = WindowedRate(WINDOW, 0), 0
    for amount, pause_ms in amounts:
        now_ms += pause_ms
        rate.record(amount, now_ms)
    # All of it in one window would not be above.
    limit = sum(amount for amount, _ in amounts)
    assert rate.throttle_ms(limit, now_ms) == 0


@given(AMOUNTS, st.integers(1, 50))
def test_bucket_never_gives_more_than_a_window_and_the_limit(amounts: list[tuple[int, int]], limit: int) -> None:
    bucket, now_ms, used = TokenBucket(WINDOW, 0), 0, 0
    for amount, pause_ms in amounts:
        now_ms += pause_ms + bucket.throttle_ms(limit, now_ms)
        bucket.record(amount, limit, now_ms)
        assert used <= limit * (now_ms + WINDOW.length_ms + 1) / 1_000
        used += amount


def _by_the_book(quotas: dict[QuotaEntity, float], user: str, client_id: str) -> float | None:
    """Kafka's documentation of the eight levels, as it stands there."""
    for level in (
        (user, client_id),
        (user, DEFAULT_NAME),
        (user, None),
        (DEFAULT_NAME, client_id),
        (DEFAULT_NAME, DEFAULT_NAME),
        (DEFAULT_NAME, None),
        (None, client_id),
        (None, DEFAULT_NAME),
    ):
        if QuotaEntity(*level) in quotas:
            return quotas[QuotaEntity(*level)]
    return None


@given(st.dictionaries(OWNERS, st.floats(1, 10)), st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "b", "c"]))
def test_first_level_that_is_set_counts(quotas: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    limits = QuotaLimits(1, {owner: {KIND: value} for owner, value in quotas.items()})
    found = limits.of_client(user, client_id).get(KIND)
    assert (None if found is None else found.value) == _by_the_book(quotas, user, client_id)
