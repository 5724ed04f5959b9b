"""The waits of a cluster that other threads may end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ottla.client.wire.transport import Readable, wait_readable
from ottla.client.wire.wake_up import WakeUp

R = TypeVar("R", bound=Readable)


class WokenWaits:
    """`wait` and `sleep` are those of a `Cluster`: they end early when `wake_up` rings, also when it rang before."""

    def __init__(self, wake_up: WakeUp) -> None:
        self._wake_up = wake_up

    def wait(self, streams: Iterable[R], timeout_ms: float) -> list[R]:
        """As `transport.wait_readable`."""
        waited = list(streams)
        every: list[Readable] = [*waited, self._wake_up]
        ready = {stream.fileno() for stream in wait_readable(every, timeout_ms)}
        if self._wake_up.fileno() in ready:
            self._wake_up.clear()
        return [stream for stream in waited if stream.fileno() in ready]

    def sleep(self, seconds: float) -> None:
        self.wait((), seconds * 1000)
