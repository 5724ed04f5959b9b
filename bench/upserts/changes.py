"""The changes of the study, as events of Debezium: inserts, updates, deletions, repeats and late ones.

Each event is known by its number, so that the table is computed from numbers alone: `folded` is one change after the
other in plain Python.  Memory grows with the keys, some 20 bytes for each, and not with the changes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from bench.client.contenders.confluent import Deliveries
from bench.raw_client.load import LoadFailed

PARTITIONS: Final = 4
FILLERS: Final = 2
DELETED_SHARE: Final = 0.1
LATE_SHARE: Final = 0.05
REPEATED_SHARE: Final = 0.03
# A repeated event is as old as that at most, a late one is of a moment so long before.
REPEATED_AFTER_MAX: Final = 10_000
LATE_BY_MAX: Final = 100_000
TEXT_BYTES: Final = 100
_SEED: Final = 20
# More than REPEATED_AFTER_MAX: an event of a block repeats one of the block, or of the one before.
_BLOCK_EVENTS: Final = 50_000
_PROBLEMS_MAX: Final = 5
_FLUSH_S: Final = 300
_NO_EVENT: Final = -1

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
# The number of the event of which it is a repetition, or its own; its key and sequence; whether it deletes.
Event: TypeAlias = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class Changes:
    """`count` events of `keys` keys.  A snapshot has one event for each key, which creates its row."""

    count: int
    keys: int
    is_snapshot: bool = False

    def scaled(self, share: float) -> Changes:
        return Changes(round(self.count * share), round(self.keys * share), self.is_snapshot)

    def events(self) -> Iterator[Event]:
        """In the order of production; always the same."""
        none = np.zeros(0, np.int64)
        before: tuple[Numbers, Numbers, Flags] = none, none, np.zeros(0, np.bool_)
        for first in range(0, self.count, _BLOCK_EVENTS):
            numbers = np.arange(first, min(first + _BLOCK_EVENTS, self.count), dtype=np.int64)
            chance = np.random.default_rng((_SEED, first))
            new_keys, new_sequences, new_deletes = self._block(numbers, chance)
            keys = np.concatenate([before[0], new_keys])
            sequences = np.concatenate([before[1], new_sequences])
            are_deleted = np.concatenate([before[2], new_deletes])
            # What is repeated may be a repetition: the event is that of its origin's own numbers.
            origins = self._origins(numbers, chance)
            at = origins - first + len(before[0])
            columns = (origins, keys[at], sequences[at], are_deleted[at])
            yield from zip(*(column.tolist() for column in columns), strict=True)
            before = keys[-REPEATED_AFTER_MAX:], sequences[-REPEATED_AFTER_MAX:], are_deleted[-REPEATED_AFTER_MAX:]

    def _block(self, numbers: Numbers, chance: np.random.Generator) -> tuple[Numbers, Numbers, Flags]:
        """Keys, sequences and deletions of these numbers."""
        count = len(numbers)
        if self.is_snapshot:
            return numbers, numbers, np.zeros(count, np.bool_)
        keys = chance.integers(0, self.keys, count, dtype=np.int64)
        is_late = chance.random(count) < LATE_SHARE
        # Odd ones are of late events alone.
        sequences = 2 * (numbers + LATE_BY_MAX)
        sequences[is_late] -= 2 * chance.integers(1, LATE_BY_MAX, int(is_late.sum())) - 1
        return keys, sequences, chance.random(count) < DELETED_SHARE

    def _origins(self, numbers: Numbers, chance: np.random.Generator) -> Numbers:
        if self.is_snapshot:
            return numbers
        origins = numbers.copy()
        is_repeated = chance.random(len(numbers)) < REPEATED_SHARE
        origins[is_repeated] -= chance.integers(1, REPEATED_AFTER_MAX, int(is_repeated.sum()))
        return np.maximum(origins, 0)


@dataclass(frozen=True, slots=True)
class Folded:
    """By key: the sequence of its row, the number of the event that counts, and whether that deletes."""

    sequences: array[int]
    origins: array[int]
    are_deleted: bytearray
    rows_count: int
    records_count: int

    @property
    def keys_count(self) -> int:
        return len(self.origins)

    def row(self, key: int) -> tuple[int, bool, str | None] | None:
        """None: the table has no row of the key."""
        if not 0 <= key < self.keys_count or (origin := self.origins[key]) == _NO_EVENT:
            return None
        is_deleted = bool(self.are_deleted[key])
        return self.sequences[key], is_deleted, None if is_deleted else text_of(origin)


def folded(changes: Changes) -> Folded:
    """One change after the other: of equal sequences the later change counts."""
    sequences, origins = array("q", bytes(8 * changes.keys)), array("q", [_NO_EVENT]) * changes.keys
    are_deleted = bytearray(changes.keys)
    rows_count = records_count = 0
    for origin, key, sequence, is_deleted in changes.events():
        records_count += 2 if is_deleted else 1
        if origins[key] == _NO_EVENT:
            rows_count += 1
        elif sequence < sequences[key]:
            continue
        sequences[key], origins[key], are_deleted[key] = sequence, origin, is_deleted
    return Folded(sequences, origins, are_deleted, rows_count, records_count)


def problems(batches: Iterable[pa.RecordBatch], expected: Folded) -> list[str]:
    """How the rows differ: columns id, source_lsn, deleted and text.  Empty where they are those of plain Python.

    One batch of rows is in memory at a time.
    """
    wrong: list[str] = []
    seen = bytearray(expected.keys_count)
    rows_count = 0
    for batch in batches:
        rows_count += batch.num_rows
        columns = (batch.column(name).to_pylist() for name in ("id", "source_lsn", "deleted", "text"))
        for key, sequence, is_deleted, text in zip(*columns, strict=True):
            right = expected.row(key)
            if right is None or seen[key]:
                wrong.append(f"key {key} has {'no' if right is None else 'one'} row where plain Python computes them")
            elif (sequence, is_deleted, text) != right:
                wrong.append(f"key {key}: {(sequence, is_deleted, text)!r}, {right!r} is right")
            if right is not None:
                seen[key] = True
            if len(wrong) > _PROBLEMS_MAX:
                return wrong
    if rows_count != expected.rows_count:
        wrong.append(f"{rows_count:,} rows, {expected.rows_count:,} are right")
    return wrong


def text_of(number: int) -> str:
    """Another one for each event."""
    return f"{number} {_filler(number % len(_fillers()))}"[:TEXT_BYTES]


def _filler(number: int) -> str:
    return _fillers()[number]


@lru_cache(maxsize=1)
def _fillers() -> tuple[str, ...]:
    chance = np.random.default_rng(_SEED)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789"))
    return tuple("".join(chance.choice(letters, TEXT_BYTES)) for _ in range(1024))


def records_of(number: int, key: int, sequence: int, is_deleted: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value; a deletion is followed by a tombstone, as from Debezium."""
    name = f'{{"id":{key}}}'
    after = "null" if is_deleted else json.dumps({"id": key, "text": text_of(number)})
    before = name if is_deleted else "null"
    op = "d" if is_deleted else "u"
    value = f'{{"op":"{op}","before":{before},"after":{after},"source":{{"lsn":{sequence}}}}}'
    yield name.encode(), value.encode()
    if is_deleted:
        yield name.encode(), None


def fill_topic(bootstrap: str, topic: str, changes: Changes) -> None:
    """By librdkafka.  A key's events are in one partition, in their order."""
    with ProcessPoolExecutor(FILLERS, get_context("spawn")) as pool:
        fillings = [pool.submit(_fill, bootstrap, topic, changes, filler) for filler in range(FILLERS)]
        for filling in fillings:
            filling.result()


def _fill(bootstrap: str, topic: str, changes: Changes, filler: int) -> None:
    deliveries, count = Deliveries(), 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 500,
            "compression.type": "lz4",
            "queue.buffering.max.kbytes": 128 << 10,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": deliveries,
        }
    )
    for origin, key, sequence, is_deleted in changes.events():
        partition = key % PARTITIONS
        if partition % FILLERS != filler:
            continue
        for name, value in records_of(origin, key, sequence, is_deleted):
            while True:
                try:
                    producer.produce(topic, value, name, partition)
                    break
                except BufferError:
                    producer.poll(0.05)
            count += 1
            if count % 1000 == 0:
                producer.poll(0)
    producer.flush(_FLUSH_S)
    if deliveries.error is not None or deliveries.count != count:
        raise LoadFailed(f"{topic}: {deliveries.count} of {count} records were acknowledged: {deliveries.error}")
