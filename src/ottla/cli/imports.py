"""Imports that take so long that people press Ctrl-C meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process by the signal, at once: nothing has been started yet that wants cleaning up.

    As an exception it would come up inside other modules' code, which may turn it into another exception, and where
    they execute text Python ends by the signal all the same.  A handler that is not Python's own stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
