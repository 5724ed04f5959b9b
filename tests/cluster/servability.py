"""The windows in which a replica could serve the clients of a run: in these no client may be silent.

A window continues through a fault that leaves a replica able to serve.  It ends where none is left, and the next one
starts when all faults are undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.history.operations import Served
from tests.history.recorder import now_ns

ALL: Final = tuple(Served)


class Servability:
    """`note` receives each window when it ends."""

    def __init__(self, note: Callable[[int, int, Served], None]) -> None:
        self._note = note
        self._began_ns: dict[Served, int] = {}
        self._not_before_ns: dict[Served, int] = dict.fromkeys(Served, 0)

    def begin(self, *whom: Served) -> None:
        for each in whom:
            self._began_ns[each] = max(now_ns(), self._not_before_ns[each])

    def end(self, *whom: Served) -> None:
        for each in whom:
            began_ns, ended_ns = self._began_ns.pop(each, None), now_ns()
            if began_ns is not None and began_ns < ended_ns:
                self._note(began_ns, ended_ns, each)

    @contextmanager
    def suspended(self, *whom: Served) -> Iterator[None]:
        """No replica can serve these within the context.  A nested context changes nothing."""
        ended = [each for each in whom if each in self._began_ns]
        self.end(*ended)
        yield
        self.begin(*ended)

    def postpone(self, duration_s: float, *whom: Served) -> None:
        """For this long from now on, a replica that could serve these clients need not do so."""
        for each in whom:
            self._not_before_ns[each] = max(self._not_before_ns[each], now_ns() + round(duration_s * 1e9))
            if each in self._began_ns:
                self.end(each)
                self.begin(each)
