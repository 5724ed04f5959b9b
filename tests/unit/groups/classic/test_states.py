from __future__ import annotations

from ottla.groups.classic.rebalance import LEGAL_NEXT, GroupState


def test_every_state_has_its_line_and_only_the_dead_stay() -> None:
    assert LEGAL_NEXT.keys() == set(GroupState)
    assert [state for state, following in LEGAL_NEXT.items() if not following] == [GroupState.DEAD]


def test_every_state_can_become_empty_again() -> None:
    for state in set(GroupState) - {GroupState.DEAD}:
        reached, found = {state}, {state}
        while found:
            found = {following for one in found for following in LEGAL_NEXT[one]} - reached
            reached |= found
        assert GroupState.EMPTY in reached
