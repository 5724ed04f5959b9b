"""The records that an example has set aside."""

from __future__ import annotations

from ottla.dead_letters import dead_letter_topic, letter_of
from ottla.errors import UnknownTopic
from ottla.testing import Topic, consume_all


def set_aside(topic: Topic) -> set[tuple[int, int]]:
    """Partition and offset of each record that has a letter, one or several."""
    try:
        messages = consume_all(dead_letter_topic(topic), bootstrap=topic.bootstrap)
    except UnknownTopic:  # nothing yet
        return set()
    letters = map(letter_of, messages)
    return {(letter.origin.partition, letter.origin.offset) for letter in letters}
