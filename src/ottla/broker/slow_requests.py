"""A line of the log for a request that took long, and where its time went.

Waits by intention are not slow and do not count: a fetch's for records, a join's and a sync's for the group, and what
waits behind an earlier request of its own connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Final

from ottla.broker.connection import Connection
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey

_log = logging.getLogger(__name__)

# At most one line in this time: what makes one request slow makes many slow.
REPORT_EVERY_S: Final = 1.0


class SlowRequests:
    """Reports those above the limit; a limit of 0 reports none."""

    __slots__ = ("_left_out_count", "_reported_s", "limit_s", "now_s")

    def __init__(self, limit_ms: int, now_s: Callable[[], float] = perf_counter) -> None:
        self.limit_s: Final = limit_ms / 1_000 if limit_ms > 0 else inf
        self.now_s: Final = now_s
        self._reported_s = -inf
        self._left_out_count = 0

    def note(self, connection: Connection, api_key: int, version: int, **parts_s: float) -> None:
        """A request took this long, part by part: reported when it is long in all."""
        took_s = sum(parts_s.values())
        if took_s <= self.limit_s:
            return
        now_s = self.now_s()
        if now_s - self._reported_s < REPORT_EVERY_S:
            self._left_out_count += 1
            return
        try:
            api: object = ApiKey(api_key).name
        except ValueError:
            api = api_key
        _log.warning(
            "request.slow",
            extra=fields(
                api=api,
                version=version,
                peer=connection.peer_name,
                client_id=connection.client_id,
                took_ms=round(took_s * 1_000),
                **{f"{part}_ms": round(part_s * 1_000) for part, part_s in parts_s.items()},
                left_out_count=self._left_out_count,
            ),
        )
        self._reported_s = now_s
        self._left_out_count = 0
