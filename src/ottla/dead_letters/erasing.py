"""Erases the letters of keys from a dead-letter topic: the others are written again, and all before them is deleted.

A log is not edited.  Compaction would leave one letter of each other key, so a topic of letters is not compacted; what
can be deleted of a log is its start.  The letters that stay keep key, value, headers, time, partition and order.  A
replay knows a letter by its origin, so a letter that was put back before is not put back again.

An erasure that is killed between the two steps leaves the others twice, which a replay puts back once, and none of the
keys' letters is lost from sight: the next erasure finds them, and writes the others once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.fetching.messages import Message
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError
from ottla.dead_letters.claims_log import ClaimsLog
from ottla.dead_letters.topics import letter_or_none
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

_RETENTION_MS: Final = "retention.ms"
_OPTIONS: Final = ProducerOptions(allow_auto_topic_creation=False)


class ReplayIsOpen(OttlaError):
    """A replay that was killed has still to put letters back, which it reads from their places."""

    hint = "complete it first: `ottla dead-letter replay` with the same topic"


class LetterPlace(NamedTuple):
    """`set_aside_ms`: the time of the letter's own record."""

    partition: int
    offset: int
    set_aside_ms: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class ErasedLetters:
    """`erased`: the letters that had one of the keys.  `rewritten_count`: others, that were before the topic's end.

    `left`: those that have a key and are still there, since the broker refused to delete them (`reason`).  Where
    `has_tombstones` compaction removes them; else `retention_ms` after they were set aside, None: never.
    """

    erased: Sequence[LetterPlace] = ()
    rewritten_count: int = 0
    left: Sequence[LetterPlace] = ()
    reason: str = ""
    has_tombstones: bool = False
    retention_ms: int | None = None

    def left_until_ms(self, place: LetterPlace) -> int | None:
        return None if self.retention_ms is None else place.set_aside_ms + self.retention_ms


def erase_letters(cluster: Cluster, topic: str, keys: Set[bytes], *, is_dry: bool = False) -> ErasedLetters:
    """Erase the letters of a dead-letter topic whose records had one of these keys.

    Letters that are set aside meanwhile stay as they are: stop what sets letters of the keys aside first.  `is_dry`
    only finds them.  Raises `UnknownTopic`, `ReplayIsOpen`, and the client's errors.
    """
    cluster.forget([topic])
    eraser = _Eraser(cluster, topic, keys)
    eraser.find()
    if is_dry or not eraser.found:
        return ErasedLetters(eraser.places)
    eraser.refuse_open_replay()
    refusal = eraser.refusal()
    if refusal is None:
        return ErasedLetters(eraser.places, eraser.rewrite())
    if refusal.code is ErrorCode.POLICY_VIOLATION:
        # A topic that is compacted and nothing else.
        eraser.bury()
    return ErasedLetters(
        left=eraser.places,
        reason=str(refusal),
        has_tombstones=refusal.code is ErrorCode.POLICY_VIOLATION,
        retention_ms=eraser.retention_ms(),
    )


class _Eraser:
    """`found`: by partition the letters that have a key, below the end that the partition had at the start."""

    def __init__(self, cluster: Cluster, topic: str, keys: Set[bytes]) -> None:
        self._cluster, self._topic, self._keys = cluster, topic, keys
        self._ranges: Mapping[TopicPartition, range] = self._log().ranges()
        self.found: dict[TopicPartition, list[LetterPlace]] = {}
        self._found_keys: dict[TopicPartition, set[bytes]] = {}

    @property
    def places(self) -> list[LetterPlace]:
        return [place for places in self.found.values() for place in places]

    def find(self) -> None:
        for message in self._log().read_in(self._ranges):
            # A letter has headers.  A tombstone of an earlier erasure outlives what compaction removed for it.
            is_tombstone = message.value is None and not message.headers
            if message.key is not None and message.key in self._keys and not is_tombstone:
                partition = TopicPartition(self._topic, message.partition)
                place = LetterPlace(message.partition, message.offset, message.timestamp_ms)
                self.found.setdefault(partition, []).append(place)
                self._found_keys.setdefault(partition, set()).add(message.key)

    def refuse_open_replay(self) -> None:
        claims = ClaimsLog(self._cluster)
        claims.read()
        if any(claim.dead_letter_topic == self._topic for claim in claims.claims.begun):
            raise ReplayIsOpen(f"a replay of {self._topic} is not complete")

    def refusal(self) -> BrokerRefused | None:
        """Of a deletion, by one that deletes nothing: before letters are written again."""
        try:
            Admin(self._cluster).delete_records({each: self._ranges[each].start for each in self.found})
        except BrokerRefused as refusal:
            return refusal
        return None

    def rewrite(self) -> int:
        """The number of messages that were written again."""
        count = 0
        for partition in self.found:
            own = {partition: self._ranges[partition]}
            with RecordProducer(self._cluster, _OPTIONS) as producer:
                for message in rewritten(self._log().read_in(own), self._keys):
                    producer.add(
                        self._topic,
                        message.key,
                        message.value,
                        timestamp_ms=message.timestamp_ms,
                        headers=message.headers,
                        partition=partition.partition,
                    )
                    count += 1
                    _check([each.error for each in producer.poll() if each.status is not DeliveryStatus.ACKNOWLEDGED])
                _flush(producer)
            Admin(self._cluster).delete_records({partition: own[partition].stop})
        return count

    def bury(self) -> None:
        """Tombstones of the keys, in the partitions that have letters of them."""
        now_ms = self._cluster.clock.now_ms()
        with RecordProducer(self._cluster, _OPTIONS) as producer:
            for partition, keys in self._found_keys.items():
                for key in sorted(keys):
                    producer.add(self._topic, key, None, timestamp_ms=now_ms, partition=partition.partition)
            _flush(producer)

    def retention_ms(self) -> int | None:
        """None where letters are kept until they are deleted, as also in a topic that is compacted alone."""
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            found = Admin(self._cluster).describe_configs(resource, [_RETENTION_MS])
        except BrokerRefused:
            return None
        entry = found.get(_RETENTION_MS)
        if entry is None or not entry.value or int(entry.value) < 0:
            return None
        return int(entry.value)

    def _log(self) -> TopicLog:
        """Aborted letters are none."""
        return TopicLog(self._cluster, self._topic, isolation=IsolationLevel.READ_COMMITTED)


def rewritten(messages: Iterable[Message], keys: Set[bytes]) -> Iterator[Message]:
    """The messages of one partition that stay: each letter once, since a killed erasure may have written some before.

    Equal messages that are no letters are not of an erasure alone, so each of them stays.
    """
    seen: set[bytes] = set()
    for message in messages:
        if message.key in keys:
            continue
        if letter_or_none(message) is not None:
            digest = _digest(message)
            if digest in seen:
                continue
            seen.add(digest)
        yield message


def _digest(message: Message) -> bytes:
    """The same of a letter and of its copy, which have the same time; another run of its batch has a later one."""
    found = (message.timestamp_ms, message.key, message.value, message.headers)
    return hashlib.blake2b(repr(found).encode(), digest_size=16).digest()


def _flush(producer: RecordProducer) -> None:
    _check([each.error for each in producer.flush() if each.status is not DeliveryStatus.ACKNOWLEDGED])
    if producer.pending_count:
        raise CallTimedOut("no acknowledgement came in time; no letter was deleted")


def _check(failures: Sequence[OttlaError | None]) -> None:
    """Nothing is deleted before all that stays is stored."""
    if failures:
        raise failures[0] or ClientError("a letter was not stored; no letter was deleted")
