"""Times of the simulated cluster, in ms.  They keep the proportions of the product's defaults at about a tenth."""

from __future__ import annotations

from typing import Final

SESSION_MS: Final = 900
LEASE_MARGIN_MS: Final = 90
PING_MS: Final = 200
REQUEST_TIMEOUT_MS: Final = 250
LAG_TIME_MAX_MS: Final = 800
LAG_CHECK_MS: Final = 300
ELECTION_PATIENCE_MS: Final = 200
FETCH_WAIT_MS: Final = 120
FETCH_TIMEOUT_MS: Final = 300
FETCH_BACKOFF_MS: Final = 40
PRODUCE_TIMEOUT_MS: Final = 700
# Between two moves of a directory's generation.
MOVE_MS: Final = 300
VIEW_POLL_MS: Final = 400
FLUSH_MS: Final = 1.0
STUCK_FLUSH_MS: Final = 500
# Records in one answer to a follower.
FETCH_RECORDS_MAX: Final = 5

FAULTS_MS: Final = 12_000
# The time within which a healed cluster must be whole again; in the product 60 s.
CONVERGENCE_MS: Final = 15_000
