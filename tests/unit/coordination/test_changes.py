"""The subjects of changes, and the ring that keeps the last of them."""

from __future__ import annotations

import pytest

from ottla.coordination.changes import changed_states, states_subject
from ottla.coordination.node_json import NodeDamaged


@pytest.mark.parametrize(
    ("indexes", "subject"),
    [
        ([0], "states/orders:0"),
        ([7, 0, 1, 2, 3, 4], "states/orders:0-4,7"),
        ([5, 5, 6], "states/orders:5-6"),
        ([1, 3, 5], "states/orders:1,3,5"),
    ],
)
def test_states_are_named_by_ranges_of_partitions(indexes: list[int], subject: str) -> None:
    assert states_subject("orders", indexes) == subject
    assert changed_states(subject) == ("orders", set(indexes))


def test_subject_of_something_else_is_none_of_states() -> None:
    assert changed_states("topics/orders") is None


@pytest.mark.parametrize("told", ["", "x", "1-", "1,", "-1", "1--2", "1-x", "0-99999999999"])
def test_ranges_that_are_none_are_damage(told: str) -> None:
    with pytest.raises(NodeDamaged, match="/changes"):
        changed_states(f"states/orders:{told}")
