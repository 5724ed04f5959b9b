"""Range: runs of consecutive partitions, the same numbers of every topic."""

from __future__ import annotations

from uuid import UUID

from ottla.groups.assignors import ASSIGNORS, MemberSpec

A, B = UUID(int=1), UUID(int=2)
RANGE = ASSIGNORS["range"]


def member(name: str, topics: set[UUID], instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(name, instance_id, frozenset(topics), {})


def test_range_gives_the_first_members_one_more_when_it_does_not_come_out_even() -> None:
    found = RANGE.assign([member(name, {A}) for name in "zyx"], {A: 8})
    assert found == {"x": {A: {0, 1, 2}}, "y": {A: {3, 4, 5}}, "z": {A: {6, 7}}}


def test_range_gives_the_same_numbers_of_topics_of_one_size() -> None:
    found = RANGE.assign([member("x", {A, B}), member("y", {A, B})], {A: 3, B: 3})
    assert found == {"x": {A: {0, 1}, B: {0, 1}}, "y": {A: {2}, B: {2}}}


def test_range_gives_the_last_members_nothing_when_there_are_too_few_partitions() -> None:
    found = RANGE.assign([member("x", {A}), member("y", {A})], {A: 1})
    assert found == {"x": {A: {0}}, "y": {}}


def test_range_deals_each_topic_to_its_own_subscribers() -> None:
    found = RANGE.assign([member("x", {A}), member("y", {A, B}), member("z", {B})], {A: 2, B: 2})
    assert found == {"x": {A: {0}}, "y": {A: {1}, B: {0}}, "z": {B: {1}}}


def test_range_puts_members_with_an_instance_id_first_by_that_id() -> None:
    group = [member("a", {A}), member("z", {A}, instance_id="i1"), member("b", {A}, instance_id="i2")]
    assert RANGE.assign(group, {A: 3}) == {"z": {A: {0}}, "b": {A: {1}}, "a": {A: {2}}}


def test_range_does_not_change_when_a_static_member_comes_back_under_another_id() -> None:
    before = RANGE.assign([member("m", {A}, "i1"), member("n", {A}, "i2")], {A: 4})
    after = RANGE.assign([member("zz", {A}, "i1"), member("n", {A}, "i2")], {A: 4})
    assert after == {"zz": before["m"], "n": before["n"]}


def test_range_leaves_out_topics_without_subscribers() -> None:
    assert RANGE.assign([member("x", {A})], {A: 1, B: 4}) == {"x": {A: {0}}}
