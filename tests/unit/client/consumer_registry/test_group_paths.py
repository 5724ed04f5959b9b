"""Where nodes of a group are, and which names a group may have."""

from __future__ import annotations

import pytest

from ottla.client.consumer_registry.group_nodes import BadGroupName, GroupPaths
from ottla.coordination.tree import check_path
from ottla.model.identifiers import TopicPartition


def test_paths_are_those_of_early_kafka() -> None:
    paths, partition = GroupPaths.of("jobs"), TopicPartition("page-views", 3)
    assert paths.consumer("host-1") == "/consumers/jobs/ids/host-1"
    assert paths.owner(partition) == "/consumers/jobs/owners/page-views/3"
    assert paths.offset(partition) == "/consumers/jobs/offsets/page-views/3"


@pytest.mark.parametrize("group", ["jobs", "a.b_c-D9", "x" * 249, "..."])
def test_name_that_is_one_part_of_a_path_is_taken(group: str) -> None:
    check_path(GroupPaths.of(group).ids)


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a b", "jobs\n", "\u00fc", "x" * 250, "a\0"])
def test_name_that_is_not_is_refused_with_what_a_name_may_have(group: str) -> None:
    with pytest.raises(BadGroupName) as refused:
        GroupPaths.of(group)
    assert "249 ASCII letters" in str(refused.value.hint)
