"""Offsets that are committed in open transactions: no client sees them before the marker of their transaction.

Where several records have the same key the last one counts, as for plain commits.  So an offset of a transaction that
commits takes effect only if no record with its key is later in the log: neither a plain commit, nor an offset of
another transaction that has been committed meanwhile.  A tombstone removes what is pending, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from ottla.groups.shared_bytes import SharedPart, bytes_of_pending, bytes_of_pending_group


class OffsetPlace(NamedTuple):
    group_id: str
    topic: str
    partition: int


class PendingOffset:
    """`key` and `value` are those of its record, the value checked."""

    __slots__ = ("held_bytes", "is_overtaken", "key", "network", "number", "value")

    def __init__(self, key: bytes, value: bytes, number: int, network: str | None, held_bytes: int) -> None:
        self.key: Final = key
        self.value: Final = value
        # Its place in the order of the records.
        self.number: Final = number
        # The client network that it counts for, as committed offsets do.
        self.network: Final = network
        self.held_bytes: Final = held_bytes
        # A later record has its key.
        self.is_overtaken = False


# By topic, partition and producer id.
_OfGroup = dict[str, dict[int, dict[int, PendingOffset]]]


class PendingOffsets:
    """Of all groups of a shard, by the producer ids of their transactions.  `held` counts their memory."""

    def __init__(self, held: SharedPart) -> None:
        self._held: Final = held
        self._by_producer: Final[dict[int, dict[OffsetPlace, PendingOffset]]] = {}
        self._by_group: Final[dict[str, _OfGroup]] = {}
        self._bytes_by_group: Final[dict[str, int]] = {}
        self._put_count = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def groups(self) -> Iterator[tuple[str, Collection[str]]]:
        """Each group with the topics of its pending offsets."""
        return ((group_id, by_topic.keys()) for group_id, by_topic in self._by_group.items())

    def topics(self, group_id: str) -> Collection[str]:
        return self._by_group.get(group_id, {}).keys()

    def partitions(self, group_id: str, topic: str) -> Collection[int]:
        return self._by_group.get(group_id, {}).get(topic, {}).keys()

    def held_bytes(self, group_id: str) -> int:
        return self._bytes_by_group.get(group_id, 0)

    def sizes_by_producer(self, place: OffsetPlace) -> dict[int, int]:
        """The bytes of the values that are pending for a partition, by producer id."""
        found = self._by_group.get(place.group_id, {}).get(place.topic, {}).get(place.partition, {})
        return {producer_id: len(each.value) for producer_id, each in found.items()}

    def put(self, producer_id: int, place: OffsetPlace, key: bytes, value: bytes, network: str | None) -> None:
        """In place of what the producer committed for the same partition before."""
        group_id, topic, partition = place
        self._put_count += 1
        of_producer = self._by_producer.setdefault(producer_id, {})
        held_bytes = bytes_of_pending(key, value)
        if (before := of_producer.get(place)) is not None:
            self._count(group_id, -before.held_bytes, before.network)
            # The group's own bytes, where the former offset was the first one of its group.
            held_bytes += before.held_bytes - bytes_of_pending(before.key, before.value)
        elif group_id not in self._by_group:
            # The first one of a group: there may be no other offset that the group counts for.
            held_bytes += bytes_of_pending_group(group_id)
        added = PendingOffset(key, value, self._put_count, network, held_bytes)
        of_producer[place] = added
        self._by_group.setdefault(group_id, {}).setdefault(topic, {}).setdefault(partition, {})[producer_id] = added
        self._count(group_id, added.held_bytes, network)

    def overtake(self, place: OffsetPlace, number: int | None = None) -> None:
        """A record for `place` has taken effect: the newest of the log, or the pending one with this number."""
        for each in self._by_group.get(place.group_id, {}).get(place.topic, {}).get(place.partition, {}).values():
            if number is None or each.number < number:
                each.is_overtaken = True

    def remove(self, place: OffsetPlace) -> None:
        """A tombstone: no transaction sets this offset any more."""
        of_partition = self._by_group.get(place.group_id, {}).get(place.topic, {}).get(place.partition, {})
        for producer_id in list(of_partition):
            of_producer = self._by_producer[producer_id]
            self._forget(producer_id, place, of_producer.pop(place))
            if not of_producer:
                del self._by_producer[producer_id]

    def take(self, producer_id: int) -> dict[OffsetPlace, PendingOffset]:
        """Those of a transaction that has ended, which are no longer pending."""
        taken = self._by_producer.pop(producer_id, {})
        for place, pending in taken.items():
            self._forget(producer_id, place, pending)
        return taken

    def _forget(self, producer_id: int, place: OffsetPlace, pending: PendingOffset) -> None:
        group_id, topic, partition = place
        by_topic = self._by_group[group_id]
        by_partition = by_topic[topic]
        del by_partition[partition][producer_id]
        if not by_partition[partition]:
            del by_partition[partition]
        if not by_partition:
            del by_topic[topic]
        self._count(group_id, -pending.held_bytes, pending.network)
        if not by_topic:
            del self._by_group[group_id]
            assert not self._bytes_by_group.pop(group_id), "bytes of offsets that are gone"

    def _count(self, group_id: str, more_bytes: int, network: str | None) -> None:
        self._bytes_by_group[group_id] = self._bytes_by_group.get(group_id, 0) + more_bytes
        self._held.add(more_bytes, network)

    def assert_sound(self) -> None:
        by_place = {
            (producer_id, OffsetPlace(group_id, topic, partition)): pending
            for group_id, by_topic in self._by_group.items()
            for topic, by_partition in by_topic.items()
            for partition, by_producer in by_partition.items()
            for producer_id, pending in by_producer.items()
        }
        assert by_place == {
            (producer_id, place): pending
            for producer_id, of_producer in self._by_producer.items()
            for place, pending in of_producer.items()
        }
        assert all(self._by_producer.values())
        assert all(all(by_topic.values()) for by_topic in self._by_group.values())
        assert self._by_group.keys() == self._bytes_by_group.keys()
