"""Batches that failed, until somebody is told."""

from __future__ import annotations

from typing import Final

from ottla.client.producing.errors import MessagesNotDelivered
from ottla.client.producing.settlement import Settlement

# Of a user who never asks, so many are kept one by one; the others are counted.
_KEPT_MAX: Final = 1_000


class Failures:
    """With the gate's lock held."""

    def __init__(self) -> None:
        self._settlements: list[Settlement] = []
        self._more_count = 0

    def add(self, settlement: Settlement) -> None:
        if len(self._settlements) >= _KEPT_MAX:
            self._settlements = [each for each in self._settlements if each.untold() is not None]
        if len(self._settlements) < _KEPT_MAX:
            self._settlements.append(settlement)
        else:
            failure = settlement.untold()
            self._more_count += failure.messages_count if failure is not None else 0

    def take(self) -> MessagesNotDelivered | None:
        """What nobody was told of, once."""
        untold = [failure for each in self._settlements if (failure := each.untold()) is not None]
        count = self._more_count + sum(failure.messages_count for failure in untold)
        self._settlements, self._more_count = [], 0
        return MessagesNotDelivered(untold, count) if count else None
