"""Each message once for its effects: what the user's own store has already is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from ottla.client.fetching.messages import Message
from ottla.client.streams.message_stream import MessageStream
from ottla.client.streams.settings import KeyT, ValueT

LoadOffset: TypeAlias = Callable[[str, int], int | None]


class AssignedStream(Protocol):
    """A stream for threads or for coroutines."""

    @property
    def assignments_count(self) -> int: ...


class Dedup:
    """Says of each message of a stream whether its effects are in the user's store.

    `load(topic, partition)` gives the offset of the last message that the store has of a partition, None when it has
    none.  The store writes that offset together with the message's effect, in one transaction: so a message that comes
    again, after a crash or a rebalance, has no second effect.

    The store is asked when a partition was assigned, since others may have gone on with it meanwhile, and when its
    offsets leave some out or go back; not for each message.
    """

    def __init__(self, stream: AssignedStream, load: LoadOffset) -> None:
        self._stream = stream
        self._load = load
        self._assignments_count = -1
        # Of each partition: the offset of the last message that is in the store, or was said to be new.
        self._last: dict[tuple[str, int], int] = {}

    def is_new(self, message: Message[Any, Any]) -> bool:
        """Ask once for each message, in the stream's order."""
        if self._stream.assignments_count != self._assignments_count:
            self._assignments_count = self._stream.assignments_count
            self._last.clear()
        place = (message.topic, message.partition)
        last = self._last.get(place)
        if last is None or message.offset != last + 1:
            stored = self._load(*place)
            last = self._last[place] = -1 if stored is None else stored
        if message.offset <= last:
            return False
        self._last[place] = message.offset
        return True


def dedup(stream: MessageStream[KeyT, ValueT], load: LoadOffset) -> Iterator[Message[KeyT | None, ValueT | None]]:
    """The messages of a stream whose effects are not in the user's store yet; see `Dedup`.

        for message in dedup(stream, load=store.last_offset):
            with store.transaction():
                store.apply(message)
                store.set_last_offset(message.topic, message.partition, message.offset)

    For asyncio: `async for message in stream`, and `if seen.is_new(message)` with `seen = Dedup(stream, load)`.
    """
    return filter(Dedup(stream, load).is_new, stream)
