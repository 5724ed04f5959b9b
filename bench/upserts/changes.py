"""The changes of the study, as events of Debezium: inserts, updates, deletions, repeats and late ones.

Each event is known by its number, so that the table is computed from numbers alone: `folded` is one change after the
other in plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
_AT_ONCE: Final = 100_000
_FLUSH_S: Final = 300

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
# By key: the sequence, and the number of the event that counts.
Folded: TypeAlias = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Changes:
    """`count` events of `keys` keys.  A snapshot has one event for each key, which creates its row."""

    count: int
    keys: int
    is_snapshot: bool = False

    def scaled(self, share: float) -> Changes:
        return Changes(round(self.count * share), round(self.keys * share), self.is_snapshot)

    def events(self) -> Events:
        """Always the same."""
        numbers = np.arange(self.count, dtype=np.int64)
        if self.is_snapshot:
            return Events(numbers, numbers, numbers, np.zeros(self.count, np.bool_))
        chance = np.random.default_rng(_SEED)
        keys = chance.integers(0, self.keys, self.count, dtype=np.int64)
        is_late = chance.random(self.count) < LATE_SHARE
        # Odd ones are of late events alone.
        sequences = 2 * (numbers + LATE_BY_MAX)
        sequences[is_late] -= 2 * chance.integers(1, LATE_BY_MAX, int(is_late.sum())) - 1
        is_deleted = chance.random(self.count) < DELETED_SHARE
        origins = numbers.copy()
        is_repeated = chance.random(self.count) < REPEATED_SHARE
        origins[is_repeated] -= chance.integers(1, REPEATED_AFTER_MAX, int(is_repeated.sum()))
        origins = np.maximum(origins, 0)
        # What is repeated may be a repetition: the event is that of its origin's own numbers.
        return Events(origins, keys[origins], sequences[origins], is_deleted[origins])


@dataclass(frozen=True, slots=True)
class Events:
    """In the order of production.  `origins`: the number of the event of which this one is a repetition, or its own."""

    origins: Numbers
    keys: Numbers
    sequences: Numbers
    are_deleted: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def __iter__(self) -> Iterator[tuple[int, int, int, bool]]:
        for first in range(0, len(self.keys), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            columns = (self.origins, self.keys, self.sequences, self.are_deleted)
            yield from zip(*(column[part].tolist() for column in columns), strict=True)


def folded(events: Events) -> Folded:
    """The row of each key, one change after the other: of equal sequences the later change counts."""
    rows: Folded = {}
    for origin, key, sequence, _ in events:
        known = rows.get(key)
        if known is None or sequence >= known[0]:
            rows[key] = sequence, origin
    return rows


def problems(table: pa.Table, expected: Mapping[int, tuple[int, int]], events: Events) -> list[str]:
    """How the table differs: columns id, source_lsn, deleted and text.  Empty where it is that of plain Python."""
    wrong: list[str] = []
    seen: set[int] = set()
    if table.num_rows != len(expected):
        wrong.append(f"{table.num_rows:,} rows, {len(expected):,} are right")
    # An event deletes as its origin did.
    deletes = dict(zip(events.origins.tolist(), events.are_deleted.tolist(), strict=True))
    for batch in table.select(["id", "source_lsn", "deleted", "text"]).to_batches(_AT_ONCE):
        for key, sequence, is_deleted, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found = expected.get(key)
            if found is None or key in seen:
                wrong.append(f"key {key} has {'no' if found is None else 'one'} row where plain Python computes them")
            elif (sequence, is_deleted, text) != _row(found, is_deleted=deletes[found[1]]):
                right = _row(found, is_deleted=deletes[found[1]])
                wrong.append(f"key {key}: {(sequence, is_deleted, text)!r}, {right!r} is right")
            seen.add(key)
            if len(wrong) > 5:
                return wrong
    return wrong


def _row(found: tuple[int, int], *, is_deleted: bool) -> tuple[int, bool, str | None]:
    sequence, origin = found
    return sequence, is_deleted, None if is_deleted else text_of(origin)


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


def records_count(events: Events) -> int:
    return len(events.keys) + int(events.are_deleted.sum())


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
