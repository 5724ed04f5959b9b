from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from bench.peers.peer import Peer

# Metric names; the unit is the end of the name.
REQUESTS_PER_S: Final = "requests_per_s"
RECORDS_PER_S: Final = "records_per_s"
MB_PER_S: Final = "mb_per_s"
BROKER_CPU: Final = "broker_cpu_s_per_million_records"
STARTUP_S: Final = "startup_s"
RSS_MB: Final = "rss_mb"

Figures = Mapping[str, float]


class Scenario(Protocol):
    """One line of the table for each peer.  `headline` is the metric that ratios and verdicts are about."""

    @property
    def name(self) -> str: ...
    @property
    def headline(self) -> str: ...
    def prepare(self, peer: Peer) -> None:
        """Before the first round."""

    def measure(self, peer: Peer) -> Figures:
        """One round.  Leaves no data behind that `prepare` did not make."""

    def clean_up(self, peer: Peer) -> None:
        """After the last round."""
