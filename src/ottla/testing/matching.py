"""Compares the records of a topic with those that a test expects: no I/O, and a readable text of the difference."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from ottla.client.fetching.messages import Message
from ottla.testing.record import Record, is_such

AnyMessage: TypeAlias = Message[Any, Any]

LINES_MAX: Final = 20
# Only equal records in several partitions leave several ways open; so many more are tried than there are records.
STATES_MAX: Final = 50_000


def difference(expected: Sequence[Record], found: Sequence[AnyMessage], *, in_any_order: bool = False) -> str | None:
    """How they differ, in lines; None when they agree.

    Each expected record is one message, and each message is expected.  Messages of a partition come in the order of the
    list; between partitions there is no order.
    """
    is_in_order = None if in_any_order else is_interleaving(expected, _by_partition(found))
    if is_in_order:
        return None
    missing, unexpected = Pairing(expected, found).unpaired()
    if missing or unexpected:
        reason = f"{len(found)} records, {len(expected)} expected"
        return "\n".join([reason, *_listed("missing", missing), *_listed("unexpected", unexpected)])
    if in_any_order:
        return None
    reason = "the records are there, in another order"
    if is_in_order is None:
        reason = "too many equal records in several partitions to find their order: compare them with in_any_order=True"
    return "\n".join([reason, *_listed("expected", expected), *_listed("found", found)])


def is_interleaving(expected: Sequence[Record], partitions: Sequence[Sequence[AnyMessage]]) -> bool | None:
    """Whether the partitions, each in its order, make up the expected records; None: it takes too long to find out."""
    if len(expected) != sum(map(len, partitions)):
        return False
    start = (0,) * len(partitions)
    seen, waiting = {start}, [(0, start)]
    while waiting:
        count, taken = waiting.pop()
        if count == len(expected):
            return True
        if len(seen) > STATES_MAX + len(expected):
            return None
        for index, partition in enumerate(partitions):
            if taken[index] < len(partition) and is_such(expected[count], partition[taken[index]]):
                following = (*taken[:index], taken[index] + 1, *taken[index + 1 :])
                if following not in seen:
                    seen.add(following)
                    waiting.append((count + 1, following))
    return False


class Pairing:
    """As many records as possible, each with a message that matches it, in any order.

    A record that finds all such messages taken takes one for which its taker finds another (augmenting paths).
    """

    def __init__(self, expected: Sequence[Record], found: Sequence[AnyMessage]) -> None:
        self._expected = expected
        self._found = found
        self._message_of: dict[int, int] = {}
        self._record_of: dict[int, int] = {}
        for index in range(len(expected)):
            self._pair(index)

    def unpaired(self) -> tuple[list[Record], list[AnyMessage]]:
        """The records without a message, and the messages without a record."""
        return (
            [record for index, record in enumerate(self._expected) if index not in self._message_of],
            [message for index, message in enumerate(self._found) if index not in self._record_of],
        )

    def _pair(self, first: int) -> None:
        # A message, and the record that would take it.
        takers: dict[int, int] = {}
        waiting = deque([first])
        while waiting:
            record = waiting.popleft()
            for message in self._candidates(record, takers):
                takers[message] = record
                if message not in self._record_of:
                    self._shift(message, takers)
                    return
                waiting.append(self._record_of[message])

    def _candidates(self, record: int, takers: dict[int, int]) -> Iterable[int]:
        # Most records are where they are expected.
        start, count = min(record, len(self._found)), len(self._found)
        for message in chain(range(start, count), range(start)):
            if message not in takers and is_such(self._expected[record], self._found[message]):
                yield message

    def _shift(self, free: int, takers: dict[int, int]) -> None:
        message: int | None = free
        while message is not None:
            record = takers[message]
            former = self._message_of.get(record)
            self._message_of[record], self._record_of[message] = message, record
            message = former


def _by_partition(found: Iterable[AnyMessage]) -> list[list[AnyMessage]]:
    partitions: dict[int, list[AnyMessage]] = {}
    for message in found:
        partitions.setdefault(message.partition, []).append(message)
    return list(partitions.values())


def _listed(title: str, items: Sequence[object]) -> list[str]:
    if not items:
        return []
    shown = [f"  {item!r}" for item in items[:LINES_MAX]]
    rest = [f"  ... and {len(items) - LINES_MAX} more"] if len(items) > LINES_MAX else []
    return [f"{title}:", *shown, *rest]
