from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.fetching.messages import Message
from ottla.client.streams.dedup import Dedup


@dataclass
class Stream:
    assignments_count: int = 1


@dataclass
class Store:
    """The last offset of each partition, and how often it was asked."""

    last: dict[tuple[str, int], int] = field(default_factory=dict)
    loads_count: int = 0

    def load(self, topic: str, partition: int) -> int | None:
        self.loads_count += 1
        return self.last.get((topic, partition))


def message(offset: int, partition: int = 0) -> Message:
    return Message("t", partition, offset, 1000, None, b"")


def test_messages_that_the_store_has_are_not_new() -> None:
    store = Store({("t", 0): 4})
    seen = Dedup(Stream(), store.load)
    assert [seen.is_new(message(offset)) for offset in range(3, 8)] == [False, False, True, True, True]


def test_store_is_asked_once_while_offsets_follow_each_other() -> None:
    store = Store()
    seen = Dedup(Stream(), store.load)
    assert all(seen.is_new(message(offset, partition)) for offset in range(100) for partition in range(2))
    assert store.loads_count == 2


def test_store_is_asked_again_when_a_message_comes_again() -> None:
    store = Store()
    seen = Dedup(Stream(), store.load)
    assert seen.is_new(message(0))
    assert seen.is_new(message(1))
    store.last["t", 0] = 0  # the effect of the second one failed
    assert [seen.is_new(message(offset)) for offset in (0, 1, 2)] == [False, True, True]


def test_store_is_asked_again_when_others_may_have_gone_on_meanwhile() -> None:
    store, stream = Store(), Stream()
    seen = Dedup(stream, store.load)
    assert seen.is_new(message(10))
    # Another consumer had the partition, handled some messages, and ended before it committed them.
    store.last["t", 0] = 13
    stream.assignments_count += 1
    assert [seen.is_new(message(offset)) for offset in range(11, 16)] == [False, False, False, True, True]
