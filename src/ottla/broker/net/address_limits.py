"""How many connections an address may have, and open each second, over all listeners of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ottla.broker.quotas.quotas import Quotas
from ottla.model.quotas import QuotaKind


class AddressLimits:
    """Counts the connections of each address."""

    def __init__(self, quotas: Quotas, connections_max: int, overrides: Mapping[str, int]) -> None:
        """`connections_max` of an address, unless `overrides` has another number for it."""
        self._quotas: Final = quotas
        self._connections_max: Final = connections_max
        self._overrides: Final = overrides
        self._counts: Counter[str] = Counter()

    def is_full(self, host: str) -> bool:
        """Whether the address has as many connections as it may."""
        return self._counts[host] >= self._overrides.get(host, self._connections_max)

    def throttle_ms(self, host: str) -> int:
        """How long a connection waits, to be closed then, since the address opens them too fast; 0: it may come."""
        quotas = self._quotas
        limit = quotas.limits.of_address(host) if quotas.limits.has_addresses else None
        throttle_ms = 0 if limit is None else quotas.take_connection(limit)
        if throttle_ms:
            quotas.count_throttle({QuotaKind.CONNECTION_CREATION_RATE: throttle_ms})
        return throttle_ms

    def add(self, host: str) -> None:
        """A connection of the address is open; `remove` ends that."""
        self._counts[host] += 1

    def remove(self, host: str) -> None:
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]
