"""All groups of a shard with their committed offsets, built from the records of the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, overload

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import TopicPartitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import decode_key, is_consumer_record
from ottla.groups.group import GroupKind
from ottla.groups.group_log import GroupRecord, GroupRecordError
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
from ottla.groups.pending_offsets import OffsetPlace, PendingOffsets
from ottla.groups.replies import CommittedOffset, TopicOffsets
from ottla.groups.shared_bytes import SharedPart, bytes_of_group, bytes_of_topic, bytes_of_value
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import NO_PRODUCER_ID

# Partitions by topic.
UnstableOffsets = Mapping[str, frozenset[int]]
NONE_UNSTABLE: Final[UnstableOffsets] = {}


class _Told(Sequence[CommittedOffset]):
    """Offsets as they were committed when they were requested; each is decoded when it is read."""

    __slots__ = ("_partitions", "_unstable", "_values")

    def __init__(
        self, partitions: Sequence[int], values: Mapping[int, bytes], unstable: Collection[int] = frozenset()
    ) -> None:
        """Offset -1 where `values` have none, an error where a partition is `unstable`; neither must change."""
        self._partitions = partitions
        self._values = values
        self._unstable = unstable

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
            return _Told(self._partitions[place], self._values, self._unstable)
        partition = self._partitions[place]
        if partition in self._unstable:
            return CommittedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
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

    def fetch(self, topics: Sequence[TopicPartitions], unstable: UnstableOffsets = NONE_UNSTABLE) -> list[TopicOffsets]:
        """In the order of the request; offset -1 where nothing is committed, an error where it is `unstable`."""
        return [TopicOffsets(topic, self._fetch_topic(topic, partitions, unstable)) for topic, partitions in topics]

    def fetch_all(self, unstable: UnstableOffsets = NONE_UNSTABLE) -> list[TopicOffsets]:
        """All that are committed, and those that are only `unstable` so far."""
        found = []
        for topic in dict.fromkeys((*self.by_topic, *unstable)):
            known = self.by_topic.get(topic, {})
            of_topic = unstable.get(topic, frozenset())
            found.append(TopicOffsets(topic, _Told(sorted(of_topic | known.keys()), dict(known), of_topic)))
        return found

    def _fetch_topic(
        self, topic: str, partitions: Sequence[int], unstable: UnstableOffsets
    ) -> Sequence[CommittedOffset]:
        known = self.by_topic.get(topic, {})
        # A copy: the values may be read after the next commits.
        values = {partition: known[partition] for partition in partitions if partition in known}
        return _Told(partitions, values, unstable.get(topic, frozenset()))


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
    """A group is kept when the log holds records of it, when it has committed offsets or pending ones, or while a
    member joins it.

    `new_classic` and `new_consumer` make a group from its id.  `held` counts what the offsets take in memory.
    """

    def __init__(
        self,
        new_classic: Callable[[str], ClassicGroup],
        new_consumer: Callable[[str], ConsumerGroup],
        held: SharedPart,
    ) -> None:
        self._held: Final = held
        self.pending: Final = PendingOffsets(held)
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

    def has_offsets(self, group_id: str) -> bool:
        """Committed ones, or some that are pending."""
        return group_id in self._offsets or group_id in self.pending

    def topics_by_group(self) -> Iterator[tuple[str, Collection[str]]]:
        """The topics of each group's committed offsets, then of its pending ones."""
        yield from ((group_id, offsets.by_topic.keys()) for group_id, offsets in self._offsets.items())
        yield from self.pending.groups()

    def unstable(self, group_id: str) -> UnstableOffsets:
        """The partitions for which offsets are pending, as they are now."""
        pending = self.pending
        return {topic: frozenset(pending.partitions(group_id, topic)) for topic in pending.topics(group_id)}

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
        group_id = group.group_id
        if group.is_forgettable and not self.has_offsets(group_id) and self._groups.get(group_id) is group:
            group.stop()
            del self._groups[group_id]

    def offset_tombstones(self, group_id: str) -> Iterator[GroupRecord]:
        """Of the group's offsets, pending ones included: a transaction that commits later restores nothing."""
        for topic in dict.fromkeys((*self.offsets(group_id).by_topic, *self.pending.topics(group_id))):
            yield from self.topic_tombstones(group_id, topic)

    def topic_tombstones(self, group_id: str, topic: str) -> Iterator[GroupRecord]:
        prefix = offset_key_prefix(group_id, topic)
        committed, pending = self.offsets(group_id).partitions(topic), self.pending.partitions(group_id, topic)
        for partition in dict.fromkeys((*committed, *pending)):
            yield GroupRecord(offset_key(prefix, partition), None)

    def forget_topic_name(self, topic: str) -> None:
        self._topic_names.pop(topic.encode(), None)

    def assert_sound(self) -> None:
        assert self._offsets.keys() <= self._groups.keys()
        assert {encoded.decode() for encoded in self._offsets_by_bytes} == self._offsets.keys()
        assert all(self._offsets.values())
        self.pending.assert_sound()
        assert {group_id for group_id, _ in self.pending.groups()} <= self._groups.keys()
        for group in self:
            assert not group.is_forgettable or self.has_offsets(group.group_id), group.history.as_fact()
            if isinstance(group, ClassicGroup):
                group.rebalance.assert_sound()

    @contextmanager
    def committing(self, network: str | None) -> Iterator[None]:
        """Records replayed within are a commit of a client of `network`, if it is known, and count for it alone.

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

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record, which is in the open transaction of `producer_id`, if any.

        Raises `GroupRecordError` for damaged bytes, and then nothing has changed.
        """
        if producer_id != NO_PRODUCER_ID and value is not None and _is_offset(key):
            self._replay_pending(key, value, producer_id)
            return
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
            if self.pending:
                self.pending.overtake(_place_of(key))
            return
        if len(key) < 2:
            raise GroupRecordError(f"a key has {len(key)} bytes, two are its version")
        key_version = (key[0] << 8) | key[1]
        if key_version <= OFFSET_KEY_VERSION:
            self._replay_offset(key, value)
            if self.pending:
                self._replay_over_pending(_place_of(key), value)
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

    def _replay_over_pending(self, place: OffsetPlace, value: bytes | None) -> None:
        """A record in no transaction is later than what is pending for its key."""
        if value is not None:
            self.pending.overtake(place)
        else:
            self.pending.remove(place)
            self._forget_without_offsets(place.group_id)

    def _replay_pending(self, key: bytes, value: bytes, producer_id: int) -> None:
        place = _place_of(key)
        value = checked_offset_value(value)
        if place.group_id not in self._groups:
            self.add_classic(place.group_id)
        self.pending.put(producer_id, place, key, value, self._committer)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends the transaction of `producer_id`: its offsets take effect, or are dropped."""
        for place, pending in self.pending.take(producer_id).items():
            if commits and not pending.is_overtaken:
                with self.committing(pending.network):
                    self._replay_offset(pending.key, pending.value)
                self.pending.overtake(place, pending.number)
            else:
                self._forget_without_offsets(place.group_id)

    def _forget_without_offsets(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self.forget_if_vacant(group)

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
        if self.has_offsets(group.group_id):
            self.add_classic(group.group_id)


def _is_offset(key: bytes) -> bool:
    return len(key) >= 2 and (key[0] << 8) | key[1] <= OFFSET_KEY_VERSION


def _place_of(key: bytes) -> OffsetPlace:
    group_bytes, topic_bytes, partition = parse_offset_key(key)
    return OffsetPlace(_text(group_bytes), _text(topic_bytes), partition)


def _text(encoded: bytes) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError:
        raise GroupRecordError(
            f"the key of a committed offset has a name that is not UTF-8: {encoded[:50]!r}"
        ) from None
