"""Connections that have not completed their handshake and login: how many there may be, and for how long.  Pure.

A client that logs in takes some milliseconds, so where there are too many, the oldest is the one that will not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.broker.net.limits import LOGIN_MS, LOGINS_PENDING_MAX, LOGINS_PENDING_PER_ADDRESS_MAX, SWEEP_INTERVAL_MS

T = TypeVar("T", bound=Hashable)


class PendingLimits(NamedTuple):
    pending_max: int = LOGINS_PENDING_MAX
    per_address_max: int = LOGINS_PENDING_PER_ADDRESS_MAX
    sweeps_max: int = LOGIN_MS // SWEEP_INTERVAL_MS


class PendingLogins(Generic[T]):
    """Each with its address and the number of the sweep at which it was accepted, the oldest first."""

    def __init__(self, limits: PendingLimits = PendingLimits()) -> None:  # noqa: B008 (an immutable value)
        self._limits: Final = limits
        self._pending: Final[dict[T, tuple[str, int]]] = {}
        self._by_address: Final[dict[str, dict[T, None]]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[T]:
        return iter(self._pending)

    def add(self, entry: T, address: str, sweep: int) -> T | None:
        """Returns the one that must be closed for it, if there is one; its owner removes it."""
        same = self._by_address.get(address, {})
        victim = None
        if len(same) >= self._limits.per_address_max:
            victim = next(iter(same))
        elif len(self._pending) >= self._limits.pending_max:
            victim = next(iter(self._pending))
        self._pending[entry] = address, sweep
        self._by_address.setdefault(address, {})[entry] = None
        return victim

    def replace(self, entry: T, successor: T) -> None:
        """The same client in its next step, which inherits the time that has passed."""
        address, sweep = self._pending[entry]
        self.remove(entry)
        self._pending[successor] = address, sweep
        self._by_address.setdefault(address, {})[successor] = None

    def remove(self, entry: T) -> None:
        """It is logged in, or closed."""
        found = self._pending.pop(entry, None)
        if found is not None:
            same = self._by_address[found[0]]
            del same[entry]
            if not same:
                del self._by_address[found[0]]

    def overdue(self, sweep: int) -> Iterator[T]:
        for entry, (_, since) in list(self._pending.items()):
            if sweep - since > self._limits.sweeps_max:
                yield entry
