"""Events that a signal sets."""

from __future__ import annotations

import _thread
import signal
import threading


def set_on(number: signal.Signals, event: threading.Event) -> None:
    """Set `event` on a signal, from another thread.

    The handler runs in the main thread, which may hold the event's lock in `wait`: it would wait for itself.
    """
    signal.signal(number, lambda *_: _thread.start_new_thread(event.set, ()))
