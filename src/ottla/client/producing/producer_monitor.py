"""The monitor of one producer: its lock, the condition to wait for, and why it takes no messages any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ottla.client.producing.errors import MessageRefused
from ottla.model.errors import OttlaError

_OWN_THREAD_HINT: Final = "a done-callback runs on it: it may send, as long as there is room, but not wait"


class ProducerMonitor:
    """`lock` guards the accumulator and everything that is reached from it.

    It opens once and closes for good.  `wait` and `announce` are called with the lock held.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.refusal: OttlaError | None = None
        self._changed = threading.Condition(self.lock)
        self._watchers: list[Callable[[], None]] = []
        self._is_forked = False
        self._sender: int | None = None

    def check(self) -> None:
        """Raise why nothing is taken any more."""
        if self.refusal is not None:
            # Raised many times, in several threads: each has its own traceback.
            raise type(self.refusal)(str(self.refusal), hint=self.refusal.hint) from self.refusal.__cause__

    def check_waiter(self) -> None:
        """Raise when this thread would wait for ever: for itself, or for a thread that another process has."""
        if self._is_forked:
            self.check()
        if self._sender == threading.get_ident():
            raise MessageRefused("the producer's own thread would wait for itself", hint=_OWN_THREAD_HINT)

    def sent_by_this_thread(self) -> None:
        """This is the thread that everybody waits for."""
        self._sender = threading.get_ident()

    def sender_has_ended(self) -> None:
        """Its number may be that of another thread now."""
        self._sender = None

    def refuse(self, why: OttlaError) -> None:
        """From now on nothing is taken; the first reason counts."""
        self.refusal = self.refusal or why

    def wait(self, timeout_s: float) -> None:
        """Until something has changed: room, a topic, the monitor itself."""
        self.check_waiter()
        self._changed.wait(timeout_s)

    def yield_now(self, timeout_s: float) -> None:
        """Let others have the lock until something has changed, if this thread may wait at all."""
        if self._sender != threading.get_ident():
            self._changed.wait(timeout_s)

    def watch(self, call: Callable[[], None]) -> None:
        """`call` once, at the next change, with the lock held, in the thread that announces it."""
        self._watchers.append(call)

    def announce(self) -> None:
        self._changed.notify_all()
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for call in watchers:
                call()

    def forked(self, why: OttlaError) -> None:
        """In the child of a fork: the thread that holds the lock may be missing here, so it is another one now."""
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._watchers = []
        self._is_forked = True
        self.refusal = why
