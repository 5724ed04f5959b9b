"""The process that counts a broker's logs: `python -m ottla.audit.counter_process SETTINGS`, the settings as JSON.

A process of its own, so that neither the broker's event loop nor its interpreter pays for a record; at a low priority,
so that the machine's other work goes first.  A line on its standard input ends it after it has published its counts;
the end of its standard input ends it at once, since the broker is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ottla.audit.log_counter import LogCounter
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.observe.events import DEFAULT_LEVEL, start_logging

_NICENESS: Final = 10
_CALL_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CountingSettings:
    """`bootstrap` is the broker's own address; what it leads, as `node_id`, is counted.  `command_config`: a
    client.properties, whose secrets so are in no list of processes."""

    bootstrap: str
    node_id: int
    window_ms: int
    interval_ms: int
    log_level: str = DEFAULT_LEVEL
    command_config: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CountingSettings:
        return cls(**json.loads(text))


def security_of_file(path: str | None) -> ClientSecurity:
    """Raises ConfigError."""
    if path is None:
        return PLAINTEXT
    # Imported late: a process without security needs none of it.
    from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties

    return security_of_properties(read_client_properties(Path(path)))


def main() -> None:
    settings = CountingSettings.from_json(sys.argv[1])
    os.nice(_NICENESS)
    start_logging(settings.log_level)
    options = ClientOptions(
        client_id="ottla-audit",
        call_timeout_ms=_CALL_TIMEOUT_MS,
        security=security_of_file(settings.command_config),
    )
    with Cluster(settings.bootstrap, options) as cluster:
        counter = LogCounter(cluster, settings.node_id, window_ms=settings.window_ms, interval_ms=settings.interval_ms)
        is_over = threading.Event()
        threading.Thread(target=_wait_for_the_end, args=(is_over,), daemon=True).start()
        while not is_over.is_set():
            counter.turn()
        # Unpublished counts are counted again by the next process.
        with contextlib.suppress(ClientError):
            counter.finish()


def _wait_for_the_end(is_over: threading.Event) -> None:
    if not sys.stdin.readline():
        # A call may be waiting for the broker that is gone.
        os._exit(0)
    is_over.set()


if __name__ == "__main__":
    main()
