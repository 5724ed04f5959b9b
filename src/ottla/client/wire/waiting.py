"""Reports why calls wait: one line within a second, and another when the reason is another."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.transport import SLOW_AFTER_MS, TcpTransport, dial_tcp
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.observe.events import named
from ottla.observe.text import safe_line
from ottla.runtime.clock import Clock, SystemClock

# What passes within this time (an election, a new topic) is not reported.
PATIENCE_MS: Final = 500
# A wait has ended when nothing was reported of it for so long: an attempt to connect takes up to 10 s
# (`connect_timeout_ms`), and attempts are at most a second apart.
OVER_AFTER_MS: Final = 12_000
# The first two have their own short wait (`unknown_topic_wait_ms`), and an error that says the same.  The last one is
# the usual answer while a transaction is being completed.
_NOT_TOLD: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


# A client in a program that runs for long warns again after this time.
WARN_AGAIN_MS: Final = 60_000


def warns_on(log: logging.Logger, client: str) -> Callable[[str], None]:
    """Reports for `Waiting`, as warnings.  `client` says which one it is, of a program that has several."""

    def warn(line: str) -> None:
        log.warning("%s: %s", safe_line(client), line, extra=named("client.waiting", client=client, reason=line))

    return warn


class Waiting:
    """`on_wait` and `dial` of a `Cluster`; `report` gets the lines.

    `again_after_ms`: a reason that lasts has another line after this time, for a log that is not read from its start.
    """

    def __init__(
        self, report: Callable[[str], None], clock: Clock | None = None, *, again_after_ms: float = math.inf
    ) -> None:
        self._report = report
        self._again_after_ms = again_after_ms
        self._clock = clock or SystemClock()
        self._began_ms = 0
        self._latest_ms = -OVER_AFTER_MS
        # Each reason, and when it was reported last.
        self._reported: dict[object, int] = {}

    def on_wait(self, reason: OttlaError) -> None:
        self._note()
        # Many partitions wait for the same.
        kind = reason.code if isinstance(reason, BrokerRefused) else str(reason)
        if self._waited_ms >= PATIENCE_MS and kind not in _NOT_TOLD:
            hint = f": {reason.hint}" if reason.hint else ""
            self._report_once(kind, f"{reason}{hint}")

    def dial(self, address: Address) -> TcpTransport:
        """Plain TCP, and a line when the peer keeps a caller waiting."""
        return dial_tcp(address, self._on_slow)

    def _on_slow(self, reason: str) -> None:
        self._note()
        self._report_once(reason, reason)

    def on_silence(self) -> None:
        """No response has arrived since the last look, and nothing has failed."""
        self._note()
        if self._waited_ms >= SLOW_AFTER_MS and not self._reported:
            self._report_once(None, "the broker has not acknowledged anything yet")

    def _report_once(self, kind: object, text: str) -> None:
        reported_ms = self._reported.get(kind)
        if reported_ms is None or self._latest_ms - reported_ms >= self._again_after_ms:
            self._reported[kind] = self._latest_ms
            self._report(safe_line(f"waiting: {text}"))

    def _note(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._latest_ms >= OVER_AFTER_MS:
            self._began_ms = now_ms
            self._reported.clear()
        self._latest_ms = now_ms

    @property
    def _waited_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms
