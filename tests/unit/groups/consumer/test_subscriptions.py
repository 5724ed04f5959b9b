"""The hash of a group's topics: the same in every process, another whenever a topic of the group changes."""

from __future__ import annotations

from ottla.groups.consumer.heartbeat import NO_TOPICS_HASH, hash_topics
from ottla.groups.topics_image import TopicImage, TopicsImage
from tests.unit.groups.consumer.small_group import image, topic_id


def test_hash_is_the_one_that_logs_hold() -> None:
    # With another, every group would be assigned again when its broker is upgraded.
    assert hash_topics(["a", "b"], image(a=1, b=2)) == -6536716808865071587


def test_hash_does_not_depend_on_the_order_of_names_or_topics() -> None:
    assert hash_topics(["b", "a"], image(b=2, a=1)) == hash_topics(["a", "b"], image(a=1, b=2))


def test_hash_of_topics_that_do_not_exist_is_none() -> None:
    assert hash_topics(["x"], image(a=1)) == hash_topics([], image(a=1)) == NO_TOPICS_HASH
    assert hash_topics(["a", "x"], image(a=1)) == hash_topics(["a"], image(a=1)) != NO_TOPICS_HASH


def test_hash_changes_with_each_fact_of_a_topic() -> None:
    hashes = {
        hash_topics(["a", "b"], image(a=1, b=2)),
        hash_topics(["a", "b"], image(a=2, b=2)),
        hash_topics(["a", "b"], image(a=1)),
        hash_topics(["a"], image(a=1, b=2)),
        hash_topics(["a"], TopicsImage.of([TopicImage("a", topic_id("a", 2), 1)])),
    }
    assert len(hashes) == 5 - 1, "b makes no difference to a group when it is not there or not read"
