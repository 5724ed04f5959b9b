"""System calls of brokers that fail or are late: strace changes them from outside."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
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
def injected(brokers: Sequence[RunningBroker], calls: str, action: str) -> Iterator[StruckCalls]:
    """Apply `action` of strace's `inject` to these calls of all the brokers, from the first affected call to the end.

    When all must fail, the first failures may leave no call for the last broker: so one affected broker
    is enough.
    """
    with ExitStack() as stack:
        traces = [stack.enter_context(_Trace(broker.pid, calls, action)) for broker in brokers]
        struck = StruckCalls(traces)
        give_up_s = time.monotonic() + _STRUCK_WITHIN_S
        while not struck.count():
            if time.monotonic() > give_up_s:
                ids = ", ".join(str(broker.node_id) for broker in brokers)
                raise FaultWithoutEffect(f"none of {calls} of broker {ids} was struck by {action}")
            for trace in traces:
                trace.check()
            time.sleep(_LOOK_EVERY_S)
        yield struck


class StruckCalls:
    """The calls that were changed so far; may be called until the injection ends."""

    def __init__(self, traces: Sequence[_Trace]) -> None:
        self._traces = traces

    def count(self) -> int:
        return sum(len(trace.struck_at_ms()) for trace in self._traces)

    def first_at_ms(self) -> float:
        """The times of the calls, by the machine's clock."""
        return min(at_ms for trace in self._traces for at_ms in trace.struck_at_ms())


class _Trace:
    def __init__(self, pid: int, calls: str, action: str) -> None:
        self._command = ["strace", "-f", "-qq", "-ttt", "-p", str(pid)]
        self._command += ["-e", f"trace={calls}", "-e", f"inject={calls}:{action}"]

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

    def struck_at_ms(self) -> list[float]:
        """Each line is a thread's id, the time in seconds, and the call; the last one may be cut."""
        lines = Path(self._file.name).read_text().splitlines()
        return [float(line.split()[1]) * 1000 for line in lines if line.endswith(_MARKS)]
