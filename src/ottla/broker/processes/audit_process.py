"""The process that counts what this broker leads."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

from ottla.broker.net.advertising import reachable
from ottla.broker.processes.child_process import ChildProcess
from ottla.model.listener import address_text
from ottla.runtime.clock import Clock

COUNTER: Final = ("-m", "ottla.audit.counting")
# At its end it reports what it has counted; without that the next process counts it again.
_END_WITHIN_S: Final = 5.0


def audit_process(
    address: tuple[str, int], node_id: int, window_ms: int, interval_ms: int, clock: Clock
) -> ChildProcess:
    """`address`: of a listener of this broker.  The process is a client of it."""
    settings = json.dumps(
        {
            "bootstrap": address_text(*reachable(address)),
            "node_id": node_id,
            "window_ms": window_ms,
            "interval_ms": interval_ms,
            "log_level": logging.getLevelName(logging.getLogger().level).lower(),
        }
    )
    return ChildProcess("audit", (sys.executable, *COUNTER, settings), clock, _END_WITHIN_S)
