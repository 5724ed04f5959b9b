"""Topics and groups in which Ottla's own parts keep their state: they describe this cluster and mean nothing on
another.

Copies and counts of users' topics leave them out, so their names are defined here once.  Other names with the same
prefix are users' own.
"""

from __future__ import annotations

from typing import Final

from ottla.model.identifiers import INTERNAL_TOPICS

AUDIT_TOPIC: Final = "ottla-audit"
AUDIT_RESULTS_TOPIC: Final = "ottla-audit-results"
# Its name of the first releases stays: entries were written under it.
LOST_OFFSETS_TOPIC: Final = "ottla-ledger"
REPLAY_CLAIMS_TOPIC: Final = "ottla-dead-letter-replays"
MIRROR_PROGRESS_TOPIC: Final = "ottla-mirror-progress"
OWN_TOPICS: Final = INTERNAL_TOPICS | {
    AUDIT_TOPIC,
    AUDIT_RESULTS_TOPIC,
    LOST_OFFSETS_TOPIC,
    REPLAY_CLAIMS_TOPIC,
    MIRROR_PROGRESS_TOPIC,
}

# The brokers' counters commit their places, and counts as metadata.
AUDIT_GROUP: Final = "ottla-audit"
# Members of a group of this name on the target take turns at being the mirror of one source.
MIRROR_GROUP_PREFIX: Final = "ottla-mirror."


def is_own_group(group_id: str) -> bool:
    return group_id == AUDIT_GROUP or group_id.startswith(MIRROR_GROUP_PREFIX)
