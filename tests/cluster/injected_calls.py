"""System calls of brokers that fail or are late: strace changes them from outside."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect

_STRUCK_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05
# How a trace marks the calls that were changed.
_MARKS: Final = ("(INJECTED)", "(DELAYED)")


@contextmanager
def injected(brokers: Sequence[RunningBroker], calls: str, action: str) -> Iterator[Callable[[], int]]:
    """Do `action` of strace's `inject` to these calls of all the brokers, from the first that was struck to the end.

    Yields what counts those that were struck.  When all are to fail, those that fail first may leave nothing to do for
    the last one: so one broker that was struck is enough.
    """
    with ExitStack() as stack:
        traces = [stack.enter_context(_Trace(broker.pid, calls, action)) for broker in brokers]

        def struck_count() -> int:
            return sum(trace.struck_count() for trace in traces)

        give_up_s = time.monotonic() + _STRUCK_WITHIN_S
        while struck_count() == 0:
            if time.monotonic() > give_up_s:
                ids = ", ".join(str(broker.node_id) for broker in brokers)
                raise FaultWithoutEffect(f"none of {calls} of broker {ids} was struck by {action}")
            for trace in traces:
                trace.check()
            time.sleep(_LOOK_EVERY_S)
        yield struck_count


class _Trace:
    def __init__(self, pid: int, calls: str, action: str) -> None:
        self._command = [
            "strace",
            "-f",
            "-qq",
            "-p",
            str(pid),
            "-e",
            f"trace={calls}",
            "-e",
            f"inject={calls}:{action}",
        ]

    def __enter__(self) -> _Trace:
        self._file = tempfile.NamedTemporaryFile("r")
        self._strace = subprocess.Popen([*self._command, "-o", self._file.name], stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._strace.send_signal(signal.SIGINT)
        self._strace.communicate()
        self._file.close()

    def check(self) -> None:
        if self._strace.poll() is not None:
            raise FaultWithoutEffect(f"{' '.join(self._command)} ended: {self._strace.communicate()[1]}")

    def struck_count(self) -> int:
        text = Path(self._file.name).read_text()
        return sum(text.count(mark) for mark in _MARKS)
