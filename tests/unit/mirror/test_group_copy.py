from __future__ import annotations

import pytest

from ottla.client.groups.group_types import CommittedOffset
from ottla.mirror.group_copy import is_copied_group, translated
from ottla.mirror.offset_translation import OffsetTranslation, Run
from ottla.mirror.options import Names
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import AUDIT_GROUP, MIRROR_GROUP_PREFIX

HERE = TopicPartition("t", 0)


def a_map() -> OffsetTranslation:
    """Source offsets 10 to 19 are target offsets 0 to 9, and 25 to 29 are 12 to 16."""
    offsets = OffsetTranslation(10, 0)
    offsets.extend(Run(10, 0, 10))
    offsets.extend(Run(25, 12, 5))
    return offsets


def offset_of(committed: int, on_target: int | None = None) -> int | None:
    there = {} if on_target is None else {HERE: CommittedOffset(on_target)}
    found = translated({HERE: CommittedOffset(committed, 3, "note")}, {HERE: a_map()}, there)
    assert all(each.metadata == "note" for each in found.values())
    return found[HERE].offset if found else None


def test_group_continues_at_the_same_record() -> None:
    assert {each: offset_of(each) for each in (0, 10, 14, 19, 20, 24, 25, 27)} == {
        0: 0,
        10: 0,
        14: 4,
        19: 9,
        20: 12,
        24: 12,
        25: 12,
        27: 14,
    }


def test_group_ahead_of_the_copy_gets_its_end() -> None:
    assert offset_of(30) == offset_of(99) == 17


def test_group_is_moved_only_forward() -> None:
    assert offset_of(14, on_target=3) == 4
    assert offset_of(14, on_target=4) is None
    assert offset_of(14, on_target=9) is None


def test_topics_that_are_not_copied_are_left_out() -> None:
    assert translated({TopicPartition("other", 0): CommittedOffset(1)}, {HERE: a_map()}, {}) == {}


@pytest.mark.parametrize("group_id", [AUDIT_GROUP, MIRROR_GROUP_PREFIX + "c"])
def test_group_of_the_clusters_own_parts_is_never_copied(group_id: str) -> None:
    assert not is_copied_group(group_id, Names((".*",)))
    assert is_copied_group("billing", Names((".*",)))
    assert not is_copied_group("billing", Names(("other",)))
