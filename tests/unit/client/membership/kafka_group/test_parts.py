"""The separate parts of a member: assignors, streams, bytes, options."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.group_types import decode_assignment
from ottla.client.membership.kafka_group.assignors import ASSIGNORS, Subscriber, assign_range, assign_round_robin
from ottla.client.membership.kafka_group.classic import encode_assignment, encode_subscription
from ottla.client.membership.kafka_group.member import spread
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.consumers.share import StreamId
from ottla.groups.subscription import subscribed_topics
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from tests.property.property_settings import example_settings

TOPICS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sets(st.integers(0, 40), max_size=20)


@given(st.sets(TOPICS))
def test_subscription_is_read_as_it_was_written(topics: set[str]) -> None:
    assert subscribed_topics(encode_subscription(sorted(topics))) == frozenset(topics)


@given(st.dictionaries(TOPICS, NUMBERS))
def test_assignment_is_read_as_it_was_written(assignment: dict[str, set[int]]) -> None:
    partitions = {TopicPartition(topic, number) for topic, numbers in assignment.items() for number in numbers}
    assert set(decode_assignment(encode_assignment(assignment))) == partitions


@pytest.mark.parametrize("assignor", ASSIGNORS)
@example_settings(100)
@given(
    st.dictionaries(st.sampled_from("uvwxyz"), st.sets(TOPICS), min_size=1),
    st.dictionaries(TOPICS, st.integers(1, 20)),
)
def test_assignor_gives_every_partition_that_somebody_reads_to_one_who_reads_it(
    assignor: str, subscriptions: dict[str, set[str]], counts: dict[str, int]
) -> None:
    members = [Subscriber(member_id, None, topics) for member_id, topics in subscriptions.items()]
    shares = ASSIGNORS[assignor](members, counts)
    assert shares.keys() == subscriptions.keys()
    for member_id, share in shares.items():
        assert share.keys() <= subscriptions[member_id]
    given_out = Counter(
        (topic, number) for share in shares.values() for topic, numbers in share.items() for number in numbers
    )
    read = set().union(*subscriptions.values())
    assert given_out == Counter((topic, number) for topic in read & counts.keys() for number in range(counts[topic]))


def test_range_gives_runs_and_the_first_members_more() -> None:
    members = [Subscriber("b", None, ["t"]), Subscriber("a", None, ["t"]), Subscriber("c", "0-static", ["t"])]
    assert assign_range(members, {"t": 5}) == {"c": {"t": [0, 1]}, "a": {"t": [2, 3]}, "b": {"t": [4]}}


def test_round_robin_goes_on_from_topic_to_topic() -> None:
    members = [Subscriber("a", None, ["s", "t"]), Subscriber("b", None, ["s", "t"])]
    assert assign_round_robin(members, {"s": 1, "t": 2}) == {"a": {"s": [0], "t": [1]}, "b": {"t": [0]}}


@example_settings(200)
@given(NUMBERS, st.integers(1, 8), st.dictionaries(st.integers(0, 40), st.integers(0, 9)))
def test_streams_get_equal_shares_and_partitions_stay_where_they_may(
    partitions: set[int], streams_count: int, present: dict[int, int]
) -> None:
    held = {partition: StreamId("me", number) for partition, number in present.items()}
    chosen = spread(partitions, streams_count, "me", held)
    assert chosen.keys() == partitions
    sizes = [list(chosen.values()).count(StreamId("me", number)) for number in range(streams_count)]
    assert max(sizes) - min(sizes) <= 1
    again = spread(partitions, streams_count, "me", chosen)
    assert again == chosen, "nothing changes where nothing has changed"
    moved = sum(1 for partition in partitions if partition in held and chosen[partition] != held[partition])
    before = Counter(held[partition] for partition in partitions if partition in held)
    larger = -(-len(partitions) // streams_count)
    surplus = sum(max(0, count - larger) for stream, count in before.items() if stream.number < streams_count)
    gone = sum(count for stream, count in before.items() if stream.number >= streams_count)
    # Only so many streams can have the larger share.
    rooms = len(partitions) % streams_count or streams_count
    full = sum(1 for stream, count in before.items() if stream.number < streams_count and count >= larger)
    assert moved == surplus + gone + max(0, full - rooms)


def test_streams_get_runs_where_nothing_is_present() -> None:
    assert [stream.number for _, stream in sorted(spread(range(5), 2, "me", {}).items())] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"protocol": "newest"}, "newest"),
        ({"session_timeout_ms": 0}, "session_timeout_ms"),
        ({"session_timeout_ms": 3_000, "heartbeat_interval_ms": 2_000}, "heartbeat_interval_ms"),
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        KafkaGroupOptions(**settings)  # type: ignore[arg-type]
