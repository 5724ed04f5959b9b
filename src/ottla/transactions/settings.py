"""The operator's settings for transactions.  Kafka's names and defaults; the broker builds it from its own settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The comment on each field is Kafka's name."""

    timeout_max_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60_000  # transactional.id.expiration.ms
    # transaction.remove.expired.transaction.cleanup.interval.ms
    expiry_check_ms: int = 60 * 60_000
    # A call that finds its id busy waits for so long, then its client gets CONCURRENT_TRANSACTIONS.
    park_max_ms: int = 1_000
    # Between two attempts to append what no request waits for.
    append_retry_ms: int = 500
