"""The settings of topics whose own are not known, only their logs: nothing is deleted on a guess."""

from __future__ import annotations

from typing import Final

# With the default retention, a week, old records would be deleted within minutes.
KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
# A log that was compacted had this policy; but nothing more is compacted until the user decides.
COMPACTED: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**63 - 1)}
