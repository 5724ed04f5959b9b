"""The states of a classic group, and the legal transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupState(Enum):
    """Every state but EMPTY and DEAD has a deadline that ends it or checks its members: no group gets stuck.

    EMPTY                  no members; offsets may expire
    PREPARING_REBALANCE    members join; ends when all have, or at the rebalance time-out
    COMPLETING_REBALANCE   the generation exists, its assignment does not; members that do not sync in time are removed
    STABLE                 the assignment is logged; each member has a session
    DEAD                   removed from its shard
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_NEXT: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
        GroupState.COMPLETING_REBALANCE: frozenset(
            {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
        ),
        GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        GroupState.DEAD: frozenset(),
    }
)
