"""A line of the log for a request that took long, and where its time went.

Waits by intention are not slow and do not count: a fetch's for records, a join's and a sync's for the group, and
requests that wait for an earlier request of its connection.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Final

from ottla.broker.net.connection import Connection
from ottla.observe.events import frequent
from ottla.protocol.api import ApiKey

_log = logging.getLogger(__name__)


class SlowRequests:
    """Reports those above the limit; a limit of 0 reports none."""

    __slots__ = ("limit_s",)

    def __init__(self, limit_ms: int) -> None:
        self.limit_s: Final = limit_ms / 1_000 if limit_ms > 0 else inf

    def note(self, connection: Connection, api_key: int, version: int, **parts_s: float) -> None:
        """A request took this long, part by part: reported when it is long in all."""
        took_s = sum(parts_s.values())
        if took_s <= self.limit_s:
            return
        try:
            api: object = ApiKey(api_key).name
        except ValueError:
            api = api_key
        _log.warning(
            "request.slow",
            extra=frequent(
                api=api,
                version=version,
                peer=connection.peer_name,
                client_id=connection.client_id,
                took_ms=round(took_s * 1_000),
                **{f"{part}_ms": round(part_s * 1_000) for part, part_s in parts_s.items()},
            ),
        )
