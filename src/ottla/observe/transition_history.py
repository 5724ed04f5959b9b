"""The last transitions of a partition or group, logged with a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.observe.events import MultilineFact, line_of

TRANSITIONS_KEPT: Final = 32


class Transition(NamedTuple):
    at_ms: int
    name: str
    facts: Mapping[str, object]


class TransitionHistory:
    """The last transitions.  Adding is cheap: text is formatted only for a failure."""

    __slots__ = ("_added_count", "_kept", "_subject", "_transitions_kept")

    def __init__(self, subject: str, transitions_kept: int = TRANSITIONS_KEPT) -> None:
        assert transitions_kept > 0
        self._subject: Final = subject
        self._transitions_kept: Final = transitions_kept
        # A list: an empty deque takes 600 bytes more, and every partition has a history of two or three transitions.
        self._kept: Final[list[Transition]] = []
        self._added_count = 0

    def add(self, now_ms: int, name: str, **facts: object) -> None:
        """Record that `name` happened.  Facts are kept as they are and formatted only for a failure."""
        if len(self._kept) == self._transitions_kept:
            del self._kept[0]
        self._kept.append(Transition(now_ms, name, facts))
        self._added_count += 1

    def as_fact(self) -> MultilineFact:
        """Lines such as `orders-3: 1042 ms opened log_end_offset=7`, oldest first: a fact of an event."""
        forgotten = self._added_count - len(self._kept)
        lines = [f"{self._subject}: {forgotten} earlier transitions were dropped"] if forgotten else []
        lines += [f"{self._subject}: {item.at_ms} ms {line_of(item.name, item.facts)}" for item in self._kept]
        return MultilineFact(tuple(lines) or (f"{self._subject}: nothing happened yet",))
