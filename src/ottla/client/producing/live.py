"""The producers of this process, for its end and for its forks."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Final, Protocol

# The end of a process waits so long for each producer that was not closed.
EXIT_WAIT_MS: Final = 10_000


class Live(Protocol):
    def end_with_the_process(self, wait_ms: int) -> None:
        """Send what is left, within `wait_ms`; raises what was not delivered.  Called again after an interrupt."""
        ...

    def in_a_forked_child(self) -> None: ...


_LIVE: Final[weakref.WeakSet[Live]] = weakref.WeakSet()


def add(live: Live) -> None:
    _LIVE.add(live)


def discard(live: Live) -> None:
    _LIVE.discard(live)


def _at_exit() -> None:
    errors: list[Exception] = []
    try:
        _end_all(EXIT_WAIT_MS, errors)
    except KeyboardInterrupt:
        # The user does not want to wait.  Losses are reported wherever the interrupt came.
        _end_all(0, errors)
    if errors:
        # Python prints it, as for every error at the end of a process.
        raise errors[0]


def _end_all(wait_ms: int, errors: list[Exception]) -> None:
    for live in list(_LIVE):
        try:
            live.end_with_the_process(wait_ms)
        except Exception as error:  # noqa: BLE001 - the others are ended, too
            errors.append(error)


def _after_fork() -> None:
    for live in list(_LIVE):
        live.in_a_forked_child()
    _LIVE.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
