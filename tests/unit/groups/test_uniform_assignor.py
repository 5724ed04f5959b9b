"""Uniform: equal shares first, then as few moves as possible."""

from __future__ import annotations

from time import process_time
from uuid import UUID

from ottla.groups.assignors import ASSIGNORS, Assignment, MemberSpec

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
UNIFORM = ASSIGNORS["uniform"]


def member(name: str, topics: set[UUID], **current: set[int]) -> MemberSpec:
    """`current` by topic: a={0, 1}."""
    ids = {"a": A, "b": B, "c": C}
    held: Assignment = {ids[topic]: frozenset(partitions) for topic, partitions in current.items()}
    return MemberSpec(name, None, frozenset(topics), held)


def test_uniform_gives_an_empty_group_nothing() -> None:
    assert UNIFORM.assign([], {A: 3}) == {}


def test_uniform_gives_every_member_an_entry_when_there_are_fewer_partitions_than_members() -> None:
    found = UNIFORM.assign([member("x", {A}), member("y", {A})], {A: 1})
    assert found == {"x": {A: {0}}, "y": {}}


def test_uniform_moves_only_what_a_newcomer_needs() -> None:
    found = UNIFORM.assign([member("x", {A}, a={0, 1, 2, 3, 4, 5}), member("y", {A})], {A: 6})
    assert found == {"x": {A: {0, 1, 2}}, "y": {A: {3, 4, 5}}}


def test_uniform_leaves_the_odd_partition_where_it_is() -> None:
    found = UNIFORM.assign([member("x", {A}, a={0}), member("y", {A}, a={1, 2})], {A: 3})
    assert found == {"x": {A: {0}}, "y": {A: {1, 2}}}


def test_uniform_shares_out_what_a_member_left_behind() -> None:
    found = UNIFORM.assign([member("x", {A}, a={0, 1}), member("y", {A}, a={2, 3})], {A: 6})
    assert found == {"x": {A: {0, 1, 4}}, "y": {A: {2, 3, 5}}}


def test_uniform_spreads_the_partitions_of_each_topic() -> None:
    found = UNIFORM.assign([member("x", {A, B}), member("y", {A, B})], {A: 2, B: 2})
    assert found == {"x": {A: {0}, B: {0}}, "y": {A: {1}, B: {1}}}


def test_uniform_drops_partitions_that_are_gone_and_topics_that_are_not_subscribed_to() -> None:
    found = UNIFORM.assign([member("x", {A}, a={0, 7}, b={0})], {A: 2})
    assert found == {"x": {A: {0, 1}}}


def test_uniform_gives_a_partition_that_two_members_had_to_one_of_them() -> None:
    found = UNIFORM.assign([member("x", {A}, a={0}), member("y", {A}, a={0})], {A: 2})
    assert found == {"x": {A: {0}}, "y": {A: {1}}}


def test_uniform_keeps_to_the_subscriptions_when_they_differ() -> None:
    found = UNIFORM.assign([member("x", {A}), member("y", {A, B})], {A: 2, B: 2})
    assert found == {"x": {A: {0, 1}}, "y": {B: {0, 1}}}


def test_uniform_levels_shares_when_a_subscription_is_added() -> None:
    x, y = member("x", {A}, a={0, 1, 2, 3}), member("y", {A, B})
    found = UNIFORM.assign([x, y], {A: 4, B: 1})
    assert {name: sum(map(len, share.values())) for name, share in found.items()} == {"x": 3, "y": 2}
    assert found["x"][A] < {0, 1, 2, 3}


def test_uniform_levels_past_a_member_that_has_given_all_it_could() -> None:
    # x is largest by topic B, which only it reads; what it holds of A goes first, then z gives.
    x = member("x", {A, B}, a={0, 1}, b={0, 1, 2, 3, 4, 5})
    z = member("z", {A}, a={2, 3, 4, 5, 6, 7})
    found = UNIFORM.assign([x, member("y", {A}), z], {A: 8, B: 6})
    assert found["x"] == {B: {0, 1, 2, 3, 4, 5}}
    assert [len(found[name][A]) for name in ("y", "z")] == [4, 4]


def test_uniform_leaves_out_topics_without_subscribers() -> None:
    assert UNIFORM.assign([member("x", {A}), member("y", set())], {A: 1, B: 5}) == {"x": {A: {0}}, "y": {}}


def test_uniform_halves_a_share_of_ten_thousand_topics_in_a_moment() -> None:
    # It runs on the broker's only thread: work that grows with the square of the topics would take half a minute.
    topic_ids = [UUID(int=number) for number in range(1, 10_001)]
    held: Assignment = {topic_id: frozenset({0}) for topic_id in topic_ids}
    topics = frozenset(topic_ids)
    began_s = process_time()
    found = UNIFORM.assign(
        [MemberSpec("x", None, topics, held), MemberSpec("y", None, topics, {})], dict.fromkeys(topic_ids, 1)
    )
    took_s = process_time() - began_s
    assert [len(found["x"]), len(found["y"])] == [5_000, 5_000]
    # What is given up has the highest ids, as before a restart and after it.
    assert set(found["x"]) == set(topic_ids[:5_000])
    assert took_s < 2
