"""Freezing a child process: once the call returns, not one of its threads runs."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress


def pause_process(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Send SIGSTOP and wait until the whole process is stopped, or has ended.

    The signal is only a request: a thread that runs on another processor continues until the kernel interrupts it
    there, and on a busy machine that is time enough to answer a request.  The parent is notified when the last thread
    stops.
    """
    process.send_signal(signal.SIGSTOP)
    if hasattr(os, "waitid"):  # Python on macOS has it from 3.13 on
        with suppress(ChildProcessError):  # another thread has reaped it
            # WNOWAIT: an end that is seen here is still there for `process` to reap.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
