"""Partitions or topics with retriable failures: when each may be retried, and when to give up."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.client.wire.deadline import Backoff, Deadline
from ottla.client.wire.retrying import Retrying

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Trouble:
    backoff: Backoff
    give_up: Deadline
    try_again: Deadline


class Postponed(Generic[Key]):
    """Pauses grow with each failure of a key, until it is cleared."""

    def __init__(self, retrying: Retrying) -> None:
        self._retrying = retrying
        self._troubles: dict[Key, _Trouble] = {}

    def postpone(self, key: Key) -> None:
        known = self._troubles.get(key)
        backoff = known.backoff if known else self._retrying.backoff()
        give_up = known.give_up if known else self._retrying.deadline()
        self._troubles[key] = _Trouble(backoff, give_up, self._retrying.deadline(backoff.next_ms()))

    def clear(self, key: Key) -> None:
        self._troubles.pop(key, None)

    def may_try(self, key: Key) -> bool:
        trouble = self._troubles.get(key)
        return trouble is None or trouble.try_again.has_passed

    def is_hopeless(self, key: Key) -> bool:
        """Whether it has been failing for `call_timeout_ms`."""
        trouble = self._troubles.get(key)
        return trouble is not None and trouble.give_up.has_passed

    def next_try_ms(self, limit_ms: float) -> float:
        """The time until a postponed key may be retried; at most `limit_ms`."""
        waiting = [trouble.try_again.remaining_ms for trouble in self._troubles.values()]
        return min([limit_ms, *(remaining_ms for remaining_ms in waiting if remaining_ms > 0)])
