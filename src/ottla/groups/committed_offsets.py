"""The committed offsets of one group: checked values, as they were logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, overload

from ottla.groups.commands import TopicPartitions
from ottla.groups.offset_records import decode_offset_value
from ottla.groups.replies import CommittedOffset, TopicOffsets


class _Told(Sequence[CommittedOffset]):
    """Offsets as they were committed when they were requested; each is decoded when it is read."""

    __slots__ = ("_partitions", "_values")

    def __init__(self, partitions: Sequence[int], values: Mapping[int, bytes]) -> None:
        """Offset -1 where `values`, which must not change, have none."""
        self._partitions = partitions
        self._values = values

    def __len__(self) -> int:
        return len(self._partitions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @overload
    def __getitem__(self, place: int) -> CommittedOffset: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[CommittedOffset]: ...

    def __getitem__(self, place: int | slice) -> CommittedOffset | Sequence[CommittedOffset]:
        if isinstance(place, slice):
            return _Told(self._partitions[place], self._values)
        partition = self._partitions[place]
        value = self._values.get(partition)
        if value is None:
            return CommittedOffset(partition)
        found = decode_offset_value(value)
        return CommittedOffset(partition, found.offset, found.leader_epoch, found.metadata)


class CommittedOffsets:
    """Cheap in memory: some hundred bytes for an offset, most of them the value itself.

    Topic names come interned from the shard, since many groups commit to the same topics.
    """

    __slots__ = ("_shares", "by_topic", "held_bytes", "network")

    def __init__(self, network: str | None = None) -> None:
        self.by_topic: Final[dict[str, dict[int, bytes]]] = {}
        self.held_bytes = 0
        # The client network that they count for (`SharedBytes`), but for `_shares`; None: they were read from the log,
        # which does not name the client.
        self.network = network
        # What counts for other networks.  Few groups have any: it is made when it is needed.
        self._shares: dict[str | None, int] | None = None

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def grow(self, more_bytes: int, network: str | None) -> None:
        """Count what a commit of `network` added."""
        self.held_bytes += more_bytes
        if network != self.network:
            if self._shares is None:
                self._shares = {}
            self._shares[network] = self._shares.get(network, 0) + more_bytes

    def shrink(self, less_bytes: int, network: str | None) -> list[tuple[str | None, int]]:
        """Count removed offsets; returns the networks for which they counted.

        No value knows its client.  It was that of `network`, which committed less in its place, as far as that has a
        share here; then one of before this process; then of the others.
        """
        given: list[tuple[str | None, int]] = []
        shares = self._shares or {}
        for each in dict.fromkeys((network, None, self.network, *shares)):
            own_bytes = self.held_bytes - sum(shares.values()) if each == self.network else shares.get(each, 0)
            part_bytes = min(less_bytes, own_bytes)
            if part_bytes:
                given.append((each, part_bytes))
                less_bytes -= part_bytes
                self.held_bytes -= part_bytes
                if each != self.network:
                    shares[each] -= part_bytes
        assert not less_bytes, "more is gone than was there"
        return given

    def keep(self, topic: str, partition: int, value: bytes) -> dict[int, bytes]:
        """Returns the topic's values by partition, a dict that stays in use until its last value is removed."""
        partitions = self.by_topic.setdefault(topic, {})
        partitions[partition] = value
        return partitions

    def remove(self, topic: str, partition: int) -> bytes | None:
        """The value that was there."""
        partitions = self.by_topic.get(topic)
        if partitions is None:
            return None
        removed = partitions.pop(partition, None)
        if not partitions:
            del self.by_topic[topic]
        return removed

    def has(self, topic: str, partition: int) -> bool:
        return partition in self.by_topic.get(topic, ())

    def size_bytes(self, topic: str, partition: int) -> int:
        """Of the value that is there; 0 for none."""
        return len(self.by_topic.get(topic, {}).get(partition, b""))

    def partitions(self, topic: str) -> Iterable[int]:
        return self.by_topic.get(topic, {}).keys()

    def fetch(self, topics: Sequence[TopicPartitions]) -> Sequence[TopicOffsets]:
        """In the order of the request; offset -1 where nothing is committed."""
        return [TopicOffsets(topic, self._fetch_topic(topic, partitions)) for topic, partitions in topics]

    def fetch_all(self) -> Sequence[TopicOffsets]:
        return [TopicOffsets(topic, _Told(sorted(known), dict(known))) for topic, known in self.by_topic.items()]

    def _fetch_topic(self, topic: str, partitions: Sequence[int]) -> Sequence[CommittedOffset]:
        known = self.by_topic.get(topic)
        if not known:
            return _Told(partitions, {})
        # A copy: the values may be read after the next commits.
        return _Told(partitions, {partition: known[partition] for partition in partitions if partition in known})
