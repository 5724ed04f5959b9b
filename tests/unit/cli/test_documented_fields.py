"""The fields of objects for programs are those of docs/command-line.md: scripts rely on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from ottla.cli import acl
from ottla.cli.cluster.health import ClusterHealth, health_object
from ottla.cli.group.tables import ShownGroup, group_object
from ottla.cli.top.rates import Look, Rates, rates_object
from ottla.cli.topic.description import topic_object
from ottla.client.admin.transactions import ListedTransaction
from ottla.client.groups.group_types import GroupDescription
from tests.unit.cli.topic.test_description import topic_of

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"
GROUP: Final = GroupDescription("g", "classic", "Stable", "consumer", "range", -1, None, ())
FOUND: Final = {
    "topic list": topic_object(topic_of((1,)), {}),
    "group describe": group_object(ShownGroup(GROUP, {}), []),
    "top": rates_object(Rates([], []), Look(0, {}, {})),
    "transaction list": dict.fromkeys(ListedTransaction._fields),
    "acl list": dict.fromkeys(acl.COLUMNS),
    "cluster status": health_object(ClusterHealth(None, [], 0, 0, 0, [], [])),
}


def documented(verb: str) -> list[str]:
    """The fields of its row, without what is said of them in brackets."""
    for row in PAGE.read_text(encoding="utf-8").splitlines():
        cells = row.split("|")
        if len(cells) == 5 and f"`{verb}`" in cells[1]:
            return re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", cells[3]))
    raise AssertionError(f"{verb} has no row")


@pytest.mark.parametrize("verb", FOUND)
def test_fields_of_an_object_are_those_of_the_page(verb: str) -> None:
    assert list(FOUND[verb]) == documented(verb)
