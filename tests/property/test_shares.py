"""The share of Algorithm 1: complete, even, the same for all consumers, and without moves where nothing changed."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.consumers.share import GroupView, StreamId, share, share_of
from ottla.model.identifiers import TopicPartition
from tests.property.property_settings import example_settings

CONSUMERS = st.dictionaries(
    st.sampled_from([f"host-{number}" for number in range(12)]),
    st.dictionaries(st.sampled_from(["orders", "views", "gone"]), st.integers(1, 4), max_size=3),
    max_size=12,
)
COUNTS = st.dictionaries(st.sampled_from(["orders", "views"]), st.integers(0, 40), max_size=2)


@given(st.integers(0, 60), st.sets(st.builds(StreamId, st.sampled_from("abcde"), st.integers(0, 20)), max_size=30))
@example_settings(200)
def test_each_partition_has_one_stream_and_sizes_differ_by_one(count: int, streams: set[StreamId]) -> None:
    shared = share(count, streams)
    assert list(shared) == (list(range(count)) if streams else [])
    sizes = Counter(shared.values())
    assert all(count // len(streams) <= sizes[stream] <= -(-count // len(streams)) for stream in streams)
    # Runs, in the order of the streams.
    assert list(shared.values()) == sorted(shared.values())


@given(CONSUMERS, COUNTS, st.randoms(use_true_random=False))
@example_settings(200)
def test_shares_of_all_consumers_cover_all_partitions_in_any_order_of_the_list(
    consumers: dict[str, dict[str, int]], counts: dict[str, int], chance: random.Random
) -> None:
    names = list(consumers)
    chance.shuffle(names)
    view, other = GroupView(consumers, counts), GroupView({name: consumers[name] for name in names}, counts)
    owners: dict[TopicPartition, str] = {}
    for name in consumers:
        own = share_of(view, name)
        assert own == share_of(other, name)
        assert all(stream.consumer_id == name for stream in own.values())
        assert not own.keys() & owners.keys()
        owners |= dict.fromkeys(own, name)
    read = {topic for topics in consumers.values() for topic in topics}
    assert owners.keys() == {
        TopicPartition(topic, partition)
        for topic, count in counts.items()
        if topic in read
        for partition in range(count)
    }


@given(CONSUMERS, COUNTS, st.sampled_from(["orders", "views"]))
@example_settings(100)
def test_one_topic_is_shared_without_regard_to_the_others(
    consumers: dict[str, dict[str, int]], counts: dict[str, int], topic: str
) -> None:
    alone = GroupView(
        {name: {topic: topics[topic]} for name, topics in consumers.items() if topic in topics},
        {name: count for name, count in counts.items() if name == topic},
    )
    view = GroupView(consumers, counts)
    for name in consumers:
        of_topic = {place: stream for place, stream in share_of(view, name).items() if place.topic == topic}
        assert of_topic == share_of(alone, name)


def test_a_consumer_that_is_not_in_the_group_has_no_share() -> None:
    assert share_of(GroupView({"a": {"t": 1}}, {"t": 3}), "b") == {}
