"""Assignors: in any group all partitions are assigned, evenly, and without needless moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.assignors import ASSIGNORS, Assignment, MemberSpec
from tests.property.property_settings import example_settings

TOPIC_IDS = [UUID(int=number) for number in range(1, 6)]
UNIFORM = ASSIGNORS["uniform"]


@st.composite
def groups(draw: st.DrawFn, *, same_topics: bool = False) -> tuple[list[MemberSpec], dict[UUID, int]]:
    """Members with partitions of topics that may have shrunk, been deleted, or been assigned to others since."""
    counts = {topic_id: draw(st.integers(1, 12)) for topic_id in draw(st.sets(st.sampled_from(TOPIC_IDS), min_size=1))}
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    shared = draw(topics)
    members = []
    for number in range(draw(st.integers(1, 8))):
        held = draw(
            st.dictionaries(
                st.sampled_from(TOPIC_IDS), st.frozensets(st.integers(0, 14), min_size=1, max_size=10), max_size=3
            )
        )
        instance_id = draw(st.sampled_from([None, None, f"i{number}"]))
        members.append(MemberSpec(f"m{number}", instance_id, shared if same_topics else draw(topics), held))
    subscribed = frozenset().union(*(member.topic_ids for member in members))
    return members, {topic_id: count for topic_id, count in counts.items() if topic_id in subscribed}


def size(assignment: Assignment) -> int:
    return sum(len(partitions) for partitions in assignment.values())


def check_valid(members: Sequence[MemberSpec], counts: Mapping[UUID, int], found: Mapping[str, Assignment]) -> None:
    assert found.keys() == {member.member_id for member in members}
    given_out = [(topic_id, p) for share in found.values() for topic_id, share_of in share.items() for p in share_of]
    assert sorted(given_out) == sorted((topic_id, p) for topic_id, count in counts.items() for p in range(count))
    for member in members:
        assert found[member.member_id].keys() <= member.topic_ids
        assert all(found[member.member_id].values()), "an empty topic is left out"


@example_settings(60)
@given(st.sampled_from(sorted(ASSIGNORS)), groups())
def test_every_subscribed_partition_goes_to_exactly_one_subscriber(
    name: str, group: tuple[list[MemberSpec], dict[UUID, int]]
) -> None:
    members, counts = group
    check_valid(members, counts, ASSIGNORS[name].assign(members, counts))


@example_settings(60)
@given(st.sampled_from(sorted(ASSIGNORS)), groups(), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    name: str, group: tuple[list[MemberSpec], dict[UUID, int]], random: object
) -> None:
    members, counts = group
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert ASSIGNORS[name].assign(shuffled, counts) == ASSIGNORS[name].assign(members, counts)


@example_settings(60)
@given(st.sampled_from(sorted(ASSIGNORS)), groups())
def test_no_partition_moves_when_nothing_has_changed(
    name: str, group: tuple[list[MemberSpec], dict[UUID, int]]
) -> None:
    members, counts = group
    first = ASSIGNORS[name].assign(members, counts)
    again = [member._replace(current=first[member.member_id]) for member in members]
    assert ASSIGNORS[name].assign(again, counts) == first


def kept_count(members: Sequence[MemberSpec], found: Mapping[str, Assignment]) -> int:
    return sum(
        len(partitions & found[member.member_id].get(topic_id, frozenset()))
        for member in members
        for topic_id, partitions in member.current.items()
    )


@example_settings(60)
@given(groups(same_topics=True))
def test_uniform_shares_differ_by_one_at_most_and_no_even_shares_move_less(
    group: tuple[list[MemberSpec], dict[UUID, int]],
) -> None:
    members, counts = group
    # Each partition had one owner, as in every target of an assignor.
    taken: set[tuple[UUID, int]] = set()
    owners = []
    for member in members:
        alone = {t: frozenset(p for p in held if (t, p) not in taken) for t, held in member.current.items()}
        taken |= {(topic_id, p) for topic_id, held in alone.items() for p in held}
        owners.append(member._replace(current=alone))

    found = UNIFORM.assign(owners, counts)

    smaller, larger_count = divmod(sum(counts.values()), len(owners))
    sizes = sorted(size(share) for share in found.values())
    assert sizes == [smaller] * (len(owners) - larger_count) + [smaller + 1] * larger_count
    # The minimum of moves with even shares: each member keeps up to the smaller share, and the larger ones, of which
    # there are `larger_count`, go to members that have more.
    keepable = [sum(sum(p < counts.get(t, 0) for p in held) for t, held in m.current.items()) for m in owners]
    best = sum(min(count, smaller) for count in keepable)
    best += min(larger_count, sum(count > smaller for count in keepable))
    assert kept_count(owners, found) == best


@example_settings(60)
@given(groups())
def test_no_single_move_makes_uniform_shares_more_equal(group: tuple[list[MemberSpec], dict[UUID, int]]) -> None:
    members, counts = group
    found = UNIFORM.assign(members, counts)
    for giver in members:
        for topic_id in found[giver.member_id]:
            for taker in members:
                if topic_id in taker.topic_ids:
                    assert size(found[giver.member_id]) - size(found[taker.member_id]) < 2


@example_settings(60)
@given(groups(same_topics=True))
def test_range_gives_the_same_numbers_of_topics_of_one_size(group: tuple[list[MemberSpec], dict[UUID, int]]) -> None:
    members, counts = group
    same_size = dict.fromkeys(counts, 7)
    for share in ASSIGNORS["range"].assign(members, same_size).values():
        assert len(set(share.values())) <= 1
