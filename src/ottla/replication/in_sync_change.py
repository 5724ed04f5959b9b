"""A leader's change of the in-sync set, and what became of it."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ottla.model.partition_state import PartitionState


class InSyncChange(NamedTuple):
    """A state that the leader wants in the tree, over the version that it was computed from."""

    change_id: int
    state: PartitionState
    expected_version: int


class ChangeOutcome(enum.Enum):
    """What is known of a proposed change."""

    APPLIED = "applied"
    # The node has another version: the change was not applied, or it was and its answer was lost.
    STALE = "stale"
    # It may be applied now, later or never.
    UNKNOWN = "unknown"
