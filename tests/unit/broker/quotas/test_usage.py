"""What clients have used, in bounded memory."""

from __future__ import annotations

from ottla.broker.quotas.quota_limits import Limit
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.quotas import DEFAULT_NAME, QuotaEntity, QuotaKind

WINDOW = Window(11, 1_000)
EVERY_CLIENT = QuotaEntity(None, DEFAULT_NAME)


def limit(client_id: str, value: float = 1_000, kind: QuotaKind = QuotaKind.PRODUCER_BYTE_RATE) -> Limit:
    return Limit(kind, value, QuotaEntity(None, client_id), EVERY_CLIENT)


def usage(sharers_max: int = 100) -> QuotaUsage:
    return QuotaUsage(WINDOW, WINDOW, sharers_max)


def test_two_clients_do_not_share_the_default() -> None:
    used = usage()
    assert used.record(limit("a"), 20_000, 0) == 10_000
    assert used.record(limit("b"), 10_000, 0) == 0


def test_kinds_are_counted_apart() -> None:
    used = usage()
    used.record(limit("a"), 20_000, 0)
    assert used.throttle_ms(limit("a", kind=QuotaKind.REQUEST_PERCENTAGE), 0) == 0


def test_new_limit_judges_what_was_used_before() -> None:
    used = usage()
    assert used.record(limit("a", 2_000), 20_000, 0) == 0
    assert used.throttle_ms(limit("a", 1_000), 0) == 10_000


def test_idle_clients_are_dropped_when_others_come() -> None:
    used = usage()
    for number in range(50):
        used.record(limit(f"early-{number}"), 1, 0)
    for number in range(50):
        used.record(limit(f"late-{number}"), 1, 20_000)
    assert used.sharers_count == 50


def test_new_client_ids_beyond_the_bound_share_one_rate() -> None:
    used = usage(sharers_max=10)
    throttled = [used.record(limit(f"made-up-{number}"), 10_000, 0) for number in range(12)]
    # Ten have their own; the eleventh and the twelfth share one.
    assert throttled[:11] == [0] * 11
    assert throttled[11] == 10_000
    assert used.sharers_count == 11


def test_amount_above_the_limit_is_refused_and_not_counted() -> None:
    used = usage()
    assert used.record_unless_above(limit("a"), 8_000, 0) == (True, 0)
    assert used.record_unless_above(limit("a"), 8_000, 100) == (False, 5_900)
    assert used.record_unless_above(limit("a"), 2_000, 200) == (True, 0)


def test_amount_larger_than_the_window_allows_is_sent_when_it_is_the_first() -> None:
    used = usage()
    assert used.record_unless_above(limit("a"), 50_000, 0) == (True, 40_000)
    assert used.record_unless_above(limit("a"), 50_000, 5_000)[0] is False
    assert used.record_unless_above(limit("a"), 50_000, 11_000)[0] is True


def test_mutations_come_in_bursts() -> None:
    used = usage()
    rate = limit("a", 1.0, QuotaKind.CONTROLLER_MUTATION_RATE)
    assert used.record_mutations(rate, 11, 0) == 0
    assert used.record_mutations(rate, 2, 0) == 2_000
    assert used.mutations_throttle_ms(rate, 1_500) == 500


def test_rates_of_the_latest_are_shown_and_no_more_than_wanted() -> None:
    used = usage(sharers_max=3)
    for client_id in ("a", "b", "c", "d"):
        used.record(limit(client_id), 5_000, 0)
    shown = list(used.rates(0, 3))
    # That of the clients without a separate rate is none of a client.
    assert [(each.sharer.client_id, each.rate) for each in shown] == [("c", 500), ("b", 500)]
