"""The guarantees of client/membership/membership.py, one test each, at every home of memberships.

`Reader` and `Ledger` check the invariants in every test: one end for each start, one holder of each partition,
nothing after the last event.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.membership.membership import CommitRefused
from ottla.consumers.effects import Committed, Left, Lost, Settled
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import SystemClock
from tests.contract.membership.membership_homes import SESSION_MS, MembershipHome, new_name
from tests.contract.membership.reader import Ledger, Reader
from tests.eventually import eventually


@pytest.fixture
def group() -> str:
    return new_name("group")


def test_single_member_gets_every_partition_of_its_topic(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(5)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions, lambda seen: seen == {0, 1, 2, 3, 4})
        eventually(lambda: reader.of(Settled))
        reader.leave()


def test_streams_of_a_member_get_equal_shares(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(5)
    with Reader(home.membership(group), Subscription({topic: 2}), ledger, "a") as reader:
        eventually(lambda: reader.partitions, lambda seen: len(seen) == 5)
        numbers = [started.stream.number for started in reader.held.values()]
        assert sorted(numbers) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
        reader.leave()


def test_two_members_share_all_partitions(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(4)
    subscription = Subscription({topic: 1})
    with (
        Reader(home.membership(group), subscription, ledger, "a") as a,
        Reader(home.membership(group), subscription, ledger, "b") as b,
    ):
        eventually(
            lambda: (a.partitions, b.partitions),
            lambda seen: seen[0] | seen[1] == {0, 1, 2, 3} and len(seen[0]) == len(seen[1]) == 2,
        )
        a.leave()
        eventually(lambda: b.partitions, lambda seen: seen == {0, 1, 2, 3})
        b.leave()


def test_many_members_that_start_together_share_all_partitions(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    topic = home.make_topic(10)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(Reader(home.membership(group), Subscription({topic: 1}), ledger, f"r{number}"))
            for number in range(5)
        ]
        eventually(
            lambda: [reader.partitions for reader in readers],
            lambda seen: set().union(*seen) == set(range(10)) and all(len(each) == 2 for each in seen),
        )
        for reader in readers:
            reader.leave()


def test_group_without_an_offset_starts_unset_and_the_next_owner_where_it_was_stopped(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    topic = home.make_topic(2)
    subscription = Subscription({topic: 1})
    with Reader(home.membership(group), subscription, ledger, "a") as a:
        eventually(lambda: a.partitions, lambda seen: seen == {0, 1})
        assert set(a.starts().values()) == {NO_OFFSET}
        a.asked = {TopicPartition(topic, 0): 7}
        a.leave()
    assert home.committed(group).get(TopicPartition(topic, 0)) == 7
    assert home.committed(group).get(TopicPartition(topic, 1), NO_OFFSET) == NO_OFFSET
    with Reader(home.membership(group), subscription, ledger, "b") as b:
        eventually(lambda: b.partitions, lambda seen: seen == {0, 1})
        assert b.starts() == {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): NO_OFFSET}
        b.leave()


def test_released_partition_starts_at_its_next_owner_where_it_was_stopped(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    topic = home.make_topic(4)
    subscription = Subscription({topic: 1})
    with Reader(home.membership(group), subscription, ledger, "a") as a:
        eventually(lambda: a.partitions, lambda seen: len(seen) == 4)
        a.asked = {TopicPartition(topic, number): 10 + number for number in range(4)}
        with Reader(home.membership(group), subscription, ledger, "b") as b:
            eventually(lambda: b.partitions, lambda seen: len(seen) == 2)
            assert b.starts() == {partition: 10 + partition.partition for partition in b.starts()}
            b.leave()
        a.leave()


def test_commit_is_confirmed_when_the_group_has_stored_it(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(1)
    partition = TopicPartition(topic, 0)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions, lambda seen: seen == {0})
        reader.commit(partition, 5)
        assert home.committed(group) == {partition: 5}
        # The user seeks back; then the same offset is committed again.
        reader.commit(partition, 3)
        assert home.committed(group) == {partition: 3}
        reader.events = [event for event in reader.events if not isinstance(event, Committed)]
        reader.commit(partition, 3)
        reader.leave()


def test_commits_one_after_the_other_end_with_the_last(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(1)
    partition = TopicPartition(topic, 0)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions, lambda seen: seen == {0})
        claim = reader.held[partition].claim
        for offset in range(1, 200):
            reader.membership.commit([(partition, claim, offset)])
        reader.commit(partition, 200)
        assert home.committed(group) == {partition: 200}
        answered = [event.offset for event in reader.events if isinstance(event, Committed)]
        assert answered == sorted(answered)
        assert not reader.of(CommitRefused)
        reader.leave()


def test_commit_of_a_claim_that_is_over_changes_nothing(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(2)
    subscription = Subscription({topic: 1})
    with Reader(home.membership(group), subscription, ledger, "a") as a:
        eventually(lambda: a.partitions, lambda seen: seen == {0, 1})
        claims = {partition: started.claim for partition, started in a.held.items()}
        a.asked = dict.fromkeys(claims, 4)
        with Reader(home.membership(group), subscription, ledger, "b") as b:
            eventually(lambda: (a.partitions, b.partitions), lambda seen: [len(each) for each in seen] == [1, 1])
            [partition] = b.held
            a.membership.commit([(partition, claims[partition], 99)])
            [own] = a.held
            a.commit(own, 6)
            assert home.committed(group) == {partition: 4, own: 6}
            b.leave()
        a.leave()


def test_partition_moves_only_after_its_stream_has_stopped(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(2)
    subscription = Subscription({topic: 1})
    with Reader(home.membership(group), subscription, ledger, "a", stops_late=True) as a:
        eventually(lambda: a.partitions, lambda seen: seen == {0, 1})
        with Reader(home.membership(group), subscription, ledger, "b") as b:
            stopping = eventually(lambda: dict(a.stopping))
            late = sorted(stopping)[0]
            a.asked[late] = 8
            # The group keeps the member, and waits.
            until_ms = a.membership.hand_out_until_ms
            eventually(lambda: a.membership.hand_out_until_ms, lambda seen: seen > until_ms)
            assert late not in b.held
            for partition in stopping:
                a.stop(partition)
            eventually(lambda: b.partitions)
            eventually(lambda: (a.held, b.held), lambda seen: len(seen[0]) == len(seen[1]) == 1)
            assert b.starts().get(late, 8) == 8
            a.membership.leave()
            for partition in eventually(lambda: dict(a.stopping)):
                a.stop(partition)
            a.leave()
            b.leave()


def test_member_may_hand_out_only_during_its_membership(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(1)
    membership = home.membership(group)
    assert membership.hand_out_until_ms == 0
    with Reader(membership, Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions)
        now_ms = SystemClock().boottime_ms()
        until_ms = membership.hand_out_until_ms
        assert now_ms < until_ms <= now_ms + SESSION_MS
        eventually(lambda: membership.hand_out_until_ms, lambda seen: seen > until_ms)
        reader.leave()
    assert membership.hand_out_until_ms == 0


def test_partitions_of_a_dead_member_go_to_the_others_after_its_session(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    topic = home.make_topic(2)
    subscription = Subscription({topic: 1})
    with Reader(home.membership(group), subscription, ledger, "a") as a:
        eventually(lambda: a.partitions, lambda seen: seen == {0, 1})
        for partition in list(a.held):
            a.commit(partition, 5)
        with Reader(home.membership(group), subscription, ledger, "b") as b:
            eventually(lambda: (a.partitions, b.partitions), lambda seen: [len(each) for each in seen] == [1, 1])
            a.membership.close()
            assert len(a.of(Lost)) == 1
            eventually(lambda: b.partitions, lambda seen: seen == {0, 1})
            assert set(b.starts().values()) == {5}
            b.leave()


def test_added_partitions_are_assigned(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(1)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions, lambda seen: seen == {0})
        home.add_partitions(topic, 3)
        eventually(lambda: reader.partitions, lambda seen: seen == {0, 1, 2})
        reader.leave()


def test_topic_that_is_created_later_is_read(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = new_name("topic")
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.membership.hand_out_until_ms)
        home.make_topic(2, topic)
        eventually(lambda: reader.partitions, lambda seen: seen == {0, 1})
        reader.leave()


def test_filter_reads_matching_topics_and_new_ones_when_they_are_created(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    prefix = new_name("some")
    first = home.make_topic(1, f"{prefix}-1")
    home.make_topic(1, f"{prefix}-denied")
    subscription = Subscription({}, TopicFilter(f"{prefix}-.*", ".*denied"), 1)
    with Reader(home.membership(group), subscription, ledger, "a") as reader:
        eventually(lambda: {partition.topic for partition in reader.held}, lambda seen: seen == {first})
        second = home.make_topic(1, f"{prefix}-2")
        eventually(lambda: {partition.topic for partition in reader.held}, lambda seen: seen == {first, second})
        reader.leave()


def test_each_of_two_groups_has_every_partition(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(2)
    subscription = Subscription({topic: 1})
    with (
        Reader(home.membership(group), subscription, ledger, "a") as a,
        Reader(home.membership(new_name("group")), subscription, Ledger(), "b") as b,
    ):
        eventually(lambda: (a.partitions, b.partitions), lambda seen: seen == ({0, 1}, {0, 1}))
        a.commit(TopicPartition(topic, 0), 9)
        assert b.starts()[TopicPartition(topic, 0)] == NO_OFFSET
        a.leave()
        b.leave()


def test_member_that_leaves_at_once_reports_it(home: MembershipHome, group: str, ledger: Ledger) -> None:
    topic = home.make_topic(1)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        reader.leave()
        assert isinstance(reader.events[-1], Left)
        # A call after the end is no mistake: other threads cannot know of it yet.
        reader.membership.leave()
        reader.membership.commit([])


def test_membership_that_never_joined_can_be_closed_and_one_can_be_closed_twice(
    home: MembershipHome, group: str, ledger: Ledger
) -> None:
    home.membership(group).close()
    topic = home.make_topic(1)
    with Reader(home.membership(group), Subscription({topic: 1}), ledger, "a") as reader:
        eventually(lambda: reader.partitions)
        reader.membership.close()
        reader.membership.close()
        assert len(reader.of(Lost)) == 1
