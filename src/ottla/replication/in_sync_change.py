"""A leader's change of the in-sync set."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.partition_state import PartitionState


class InSyncChange(NamedTuple):
    """A state that the leader wants in the tree, over the version that it was computed from."""

    change_id: int
    state: PartitionState
    expected_version: int
