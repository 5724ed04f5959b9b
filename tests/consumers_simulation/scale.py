"""Times of the simulated groups, in ms: about a tenth of the product's defaults, in the same proportions."""

from __future__ import annotations

from typing import Final

from ottla.consumers.rebalance_pace import RebalancePace
from ottla.model.session_lease import lease_ms

SESSION_MS: Final = 900
LEASE_MS: Final = lease_ms(SESSION_MS)
PING_MS: Final = 200
LATENCY_MS: Final = 1.5
# How often a consumer's streams request the next message.
ASK_MS: Final = 12
COMMIT_MS: Final = 70
SEND_MS: Final = 40
# Before the faults end nothing is sent for this long, so some owners have nothing to commit.
QUIET_MS: Final = 500
PACE: Final = RebalancePace(collect_ms=10, collect_max_ms=150, retry_ms=10, retry_max_ms=250, attempts_max=6)

FAULTS_MS: Final = 6_000
# The time within which a healed group must own, read and commit everything.
CONVERGENCE_MS: Final = 5_000
