"""All groups of a shard with their committed offsets, built from the records of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, overload

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import TopicPartitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import decode_key, is_consumer_record
from ottla.groups.decision import GroupRecord, GroupRecordError
from ottla.groups.group import GroupKind
from ottla.groups.group_metadata import GROUP_KEY_VERSION, parse_group_key, parse_group_value
from ottla.groups.offset_records import (
    OFFSET_KEY_VERSION,
    checked_offset_value,
    decode_offset_value,
    offset_key,
    offset_key_prefix,
    parse_offset_key,
    partition_of,
)
from ottla.groups.replies import CommittedOffset, TopicOffsets
from ottla.groups.shared_bytes import SharedPart, bytes_of_group, bytes_of_topic, bytes_of_value
from ottla.model.errors import WireError


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


class GroupMetrics(NamedTuple):
    """`offsets` is the group's own object: it is read, not kept."""

    group_id: str
    kind: GroupKind
    state_name: str
    members_count: int
    offsets: CommittedOffsets

    def committed(self) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, committed offset)."""
        for topic, values in self.offsets.by_topic.items():
            for partition, value in values.items():
                yield topic, partition, decode_offset_value(value).offset


# Bounded, so that a million topics with one partition each do not store their names twice.
PLACES_MAX: Final = 20_000

AnyGroup = ClassicGroup | ConsumerGroup


class GroupTable:
    """A group is kept when the log holds records of it, when it has committed offsets, or while a member joins it.

    `new_classic` and `new_consumer` make a group from its id.  `held` counts what the offsets take in memory.
    """

    def __init__(
        self,
        new_classic: Callable[[str], ClassicGroup],
        new_consumer: Callable[[str], ConsumerGroup],
        held: SharedPart,
    ) -> None:
        self._held: Final = held
        # The network of the client whose commit is being replayed.
        self._committer: str | None = None
        self._new_classic: Final = new_classic
        self._new_consumer: Final = new_consumer
        self._groups: Final[dict[str, AnyGroup]] = {}
        self._offsets: Final[dict[str, CommittedOffsets]] = {}
        # The same by the id's bytes, as keys of records have it: most records of the log are committed offsets.
        self._offsets_by_bytes: Final[dict[bytes, CommittedOffsets]] = {}
        # A topic's name by its bytes, once for all groups.
        self._topic_names: Final[dict[bytes, str]] = {}
        # Where the offsets with a key's prefix are kept: committing again is one look-up.
        self._places: Final[dict[bytes, tuple[dict[int, bytes], CommittedOffsets]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(self._groups.values())

    def group_ids(self) -> Iterable[str]:
        return self._groups.keys()

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def offsets(self, group_id: str) -> CommittedOffsets:
        """The group's committed offsets; an empty object, which is not kept, when it has none."""
        return self._offsets.get(group_id) or CommittedOffsets()

    def offsets_by_group(self) -> Iterator[tuple[str, dict[str, dict[int, bytes]]]]:
        """For every group with committed offsets: its topics, with the values of their partitions."""
        return ((group_id, offsets.by_topic) for group_id, offsets in self._offsets.items())

    def add_classic(self, group_id: str) -> ClassicGroup:
        assert group_id not in self._groups
        group = self._new_classic(group_id)
        self._groups[group_id] = group
        return group

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """A new group, not in the table yet: see `put`."""
        return self._new_consumer(group_id)

    def put(self, group: AnyGroup) -> None:
        """Put `group` under its id.  A group that it replaces keeps its deadlines."""
        self._groups[group.group_id] = group

    def restore(self, group_id: str, before: AnyGroup | None) -> None:
        """Undo a `put` whose records were not appended."""
        if before is None:
            del self._groups[group_id]
        else:
            self._groups[group_id] = before

    def forget_if_vacant(self, group: AnyGroup) -> None:
        """Drop a group without records, members and offsets."""
        if group.is_forgettable and group.group_id not in self._offsets and self._groups.get(group.group_id) is group:
            group.stop()
            del self._groups[group.group_id]

    def offset_tombstones(self, group_id: str) -> Iterator[GroupRecord]:
        for topic in list(self.offsets(group_id).by_topic):
            yield from self.topic_tombstones(group_id, topic)

    def topic_tombstones(self, group_id: str, topic: str) -> Iterator[GroupRecord]:
        prefix = offset_key_prefix(group_id, topic)
        for partition in list(self.offsets(group_id).partitions(topic)):
            yield GroupRecord(offset_key(prefix, partition), None)

    def forget_topic_name(self, topic: str) -> None:
        self._topic_names.pop(topic.encode(), None)

    def assert_sound(self) -> None:
        assert self._offsets.keys() <= self._groups.keys()
        assert {encoded.decode() for encoded in self._offsets_by_bytes} == self._offsets.keys()
        assert all(self._offsets.values())
        for group in self:
            assert not group.is_forgettable or group.group_id in self._offsets, group.history.as_fact()
            if isinstance(group, ClassicGroup):
                group.rebalance.assert_sound()

    @contextmanager
    def committing(self, network: str) -> Iterator[None]:
        """Records replayed within are a commit of a client of `network`, and count for it alone.

        The log does not name the client: what is replayed at a start counts for no network, only in the sum.  A client
        that commits to an old group, or to another client's, is charged for nothing that it did not add.
        """
        self._committer = network
        try:
            yield
        finally:
            self._committer = None

    def _count(self, offsets: CommittedOffsets, more_bytes: int) -> None:
        if more_bytes > 0:
            offsets.grow(more_bytes, self._committer)
            self._held.add(more_bytes, self._committer)
        elif more_bytes < 0:
            for network, less_bytes in offsets.shrink(-more_bytes, self._committer):
                self._held.add(-less_bytes, network)

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record.  Raises `GroupRecordError` for damaged bytes, and then nothing has changed."""
        if value is not None and (place := self._places.get(key[:-4])) is not None:
            partitions, offsets = place
            partition = partition_of(key)
            value = checked_offset_value(value)
            before = partitions.get(partition)
            partitions[partition] = value
            if before is None:
                self._count(offsets, bytes_of_value(value))
            elif len(before) != len(value):
                self._count(offsets, len(value) - len(before))
            return
        if len(key) < 2:
            raise GroupRecordError(f"a key has {len(key)} bytes, two are its version")
        key_version = (key[0] << 8) | key[1]
        if key_version <= OFFSET_KEY_VERSION:
            self._replay_offset(key, value)
        elif key_version == GROUP_KEY_VERSION:
            self._replay_classic(key, value)
        elif is_consumer_record(key_version):
            self._replay_consumer(key, value)

    def _replay_offset(self, key: bytes, value: bytes | None) -> None:
        group_bytes, topic_bytes, partition = parse_offset_key(key)
        topic = self._topic_names.get(topic_bytes) or _text(topic_bytes)
        offsets = self._offsets_by_bytes.get(group_bytes)
        if value is not None:
            value = checked_offset_value(value)
            self._topic_names[topic_bytes] = topic
            if offsets is None:
                offsets = self._add_offsets(group_bytes)
            before = offsets.by_topic.get(topic)
            if before is None:
                self._count(offsets, bytes_of_topic(topic_bytes) + bytes_of_value(value))
            else:
                replaced = before.get(partition)
                self._count(offsets, bytes_of_value(value) - (0 if replaced is None else bytes_of_value(replaced)))
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places[key[:-4]] = offsets.keep(topic, partition, value), offsets
        elif offsets is not None:
            removed = offsets.remove(topic, partition)
            if removed is not None:
                self._count(offsets, -bytes_of_value(removed))
            if removed is not None and topic not in offsets.by_topic:
                self._count(offsets, -bytes_of_topic(topic_bytes))
            if topic not in offsets.by_topic:
                # Independent of the version of the remembered key.
                for version in range(OFFSET_KEY_VERSION + 1):
                    self._places.pop(bytes((0, version)) + key[2:-4], None)
            if not offsets:
                self._remove_offsets(group_bytes)

    def _add_offsets(self, group_bytes: bytes) -> CommittedOffsets:
        group_id = _text(group_bytes)
        if group_id not in self._groups:
            # A client without a group commits.
            self.add_classic(group_id)
        offsets = CommittedOffsets(self._committer)
        self._count(offsets, bytes_of_group(group_bytes))
        self._offsets[group_id] = self._offsets_by_bytes[group_bytes] = offsets
        return offsets

    def _remove_offsets(self, group_bytes: bytes) -> None:
        group_id = _text(group_bytes)
        self._count(self._offsets_by_bytes[group_bytes], -bytes_of_group(group_bytes))
        del self._offsets[group_id], self._offsets_by_bytes[group_bytes]
        self.forget_if_vacant(self._groups[group_id])

    def _replay_classic(self, key: bytes, value: bytes | None) -> None:
        group_id = parse_group_key(key)
        group = self._groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                self._drop(group)
            return
        found = parse_group_value(value)
        if not isinstance(group, ClassicGroup):
            if group is not None:
                group.stop()
            group = self._groups[group_id] = self._new_classic(group_id)
        group.apply(found)

    def _replay_consumer(self, key: bytes, value: bytes | None) -> None:
        try:
            consumer_key = decode_key(key)
            group = self._groups.get(consumer_key.group_id)
            if isinstance(group, ConsumerGroup):
                group.replay(consumer_key, value)
                if value is None and not group.has_records:
                    self._drop(group)
            elif value is not None:
                made = self._new_consumer(consumer_key.group_id)
                made.replay(consumer_key, value)
                if group is not None:
                    group.stop()
                self._groups[consumer_key.group_id] = made
        except WireError as error:
            raise GroupRecordError(f"a record of a consumer group is damaged: {error}") from None

    def _drop(self, group: AnyGroup) -> None:
        """The log has no records of the group any more; its committed offsets stay, under a group without members."""
        group.stop()
        del self._groups[group.group_id]
        if group.group_id in self._offsets:
            self.add_classic(group.group_id)


def _text(encoded: bytes) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError:
        raise GroupRecordError(
            f"the key of a committed offset has a name that is not UTF-8: {encoded[:50]!r}"
        ) from None
