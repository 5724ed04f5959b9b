"""After any truncation a log's producer state equals a replay of its batches, from scratch or from a snapshot."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.end_marker import EndMarker, build_end_marker
from ottla.records.header import BASE_OFFSET_TO_EPOCH, BatchHeader, read_header
from ottla.storage.directory import flushed_ends
from ottla.storage.log.log import Log
from ottla.storage.producers import truncated_producers
from ottla.storage.producers.aborted_transactions import AbortedIndex
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX
from ottla.storage.producers.producer_state import SEQUENCE_MASK, ProducerStates
from ottla.storage.producers.replay import producers_at
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import truncate_log

from .log_model import START_MS
from .log_place import SMALL_SEGMENTS, LogPlace
from .property_settings import examples, timeout_s

SEEDS_COUNT = 30
STEPS_COUNT = 80
CONFIG = replace(SMALL_SEGMENTS, segment_bytes=5_000, index_interval_bytes=150)
pytestmark = pytest.mark.timeout(timeout_s(SEEDS_COUNT))

# Some send only one in a thousand batches; -1 is no idempotent producer.
PRODUCER_WEIGHTS = {-1: 100, 0: 300, 5: 300, 77: 60, 1_000: 20, 2**40: 4, 2**40 + 1: 1}

Producers = dict[int, tuple[int, list[tuple[int, int, int, int]], int, int, int]]


def view(states: ProducerStates) -> Producers:
    """The whole producer state except times."""
    return {
        producer_id: (
            entry.epoch,
            list(entry.batches),
            entry.next_sequence,
            entry.current_txn_first_offset,
            entry.coordinator_epoch,
        )
        for producer_id, entry in states.entries()
    }


class FollowerLife:
    """A follower's log on a memory disk, and the headers of all batches that are in it or were removed at its start."""

    def __init__(self, seed: int, *, has_transactions: bool, has_retention: bool) -> None:
        self.rng = random.Random(seed)
        self.place = LogPlace(MemoryDisk(), CONFIG)
        self.place.create(1)
        self.heads: list[BatchHeader] = []
        self.markers: dict[int, EndMarker] = {}
        self.has_transactions = has_transactions
        self.has_retention = has_retention

    @property
    def log(self) -> Log:
        return self.place.log()

    def expected(self) -> ProducerStates:
        states = ProducerStates()
        for head in self.heads:
            states.replay(head, self.marker_of(head), START_MS)
        return states

    def marker_of(self, head: BatchHeader) -> EndMarker | None:
        return self.markers[head.base_offset] if head.is_control else None

    def check_transactions(self) -> None:
        """Open and aborted transactions are those of the batches."""
        replayed = LogTransactions(ProducerStates())
        found = [replayed.replay(head, self.marker_of(head), START_MS) for head in self.heads if head.producer_id >= 0]
        assert self.log.transactions.open == replayed.open
        start_offset = self.log.segments[0].base_offset
        aborted = [each for each in found if each is not None and each.last_offset >= start_offset]
        assert [each for segment in self.log.segments for each in segment.aborted()] == aborted

    def append(self) -> None:
        """A run of batches as their leader accepted them."""
        leader = self.expected()
        run = bytearray()
        for _ in range(self.rng.choice([1, 3, 30])):
            batch = self._next_batch(leader, self.heads[-1].next_offset if self.heads else 0)
            self.heads.append(read_header(batch))
            leader.replay(self.heads[-1], self.marker_of(self.heads[-1]), START_MS)
            run += batch
        self.log.append_run(memoryview(run), START_MS)

    def _next_batch(self, leader: ProducerStates, base_offset: int) -> bytearray:
        rng, builder = self.rng, BatchBuilder()
        for _ in range(rng.randint(1, 3)):
            builder.append(START_MS, b"key", rng.randbytes(rng.choice([0, 8, 40])))
        (producer_id,) = rng.choices(list(PRODUCER_WEIGHTS), list(PRODUCER_WEIGHTS.values()))
        if producer_id < 0:
            return builder.build(base_offset=base_offset, leader_epoch=0)
        entry = leader.entry(producer_id)
        is_marker = self.has_transactions and rng.random() < 0.1
        if entry is None:
            epoch, sequence = rng.choice([0, 0, 0, 3]), rng.choice([0, 0, 0, 5, SEQUENCE_MASK - 1])
        elif rng.random() < 0.05:
            epoch, sequence = entry.epoch + 1, 0
        else:
            epoch, sequence = entry.epoch, entry.next_sequence
        if is_marker:
            marker = self.markers[base_offset] = EndMarker(rng.random() < 0.5, rng.randint(0, 5))
            batch = build_end_marker(marker, producer_id, epoch, START_MS)
            BASE_OFFSET_TO_EPOCH.pack_into(batch, 0, base_offset, read_header(batch).batch_length, 0)
            return batch
        return builder.build(
            base_offset=base_offset,
            leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=self.has_transactions and rng.random() < 0.3,
        )

    def cut(self) -> None:
        """Mostly near the end, as a change of the leader does it."""
        first, end = self.log.segments[0].base_offset, self.log.log_end_offset
        offset = max(first, end - self.rng.choice([1, 5, 50, 500])) if self.rng.random() < 0.8 else first
        truncate_log(self.log, self.rng.randint(offset, end))
        self.heads = [head for head in self.heads if head.next_offset <= self.log.log_end_offset]

    def restart(self) -> None:
        if self.rng.random() < 0.5:
            self.place.reopen_clean()
        else:
            self.place.flush()
            self.place.reopen_on(self.place.disk.kill())

    def damage_snapshot(self) -> None:
        paths = [path for path in self.place.disk.files() if path.endswith(SNAPSHOT_SUFFIX)]
        if paths:
            file = self.place.disk.open(self.rng.choice(paths))
            file.write_at(3, b"damage")
            file.close()

    def drop_old_segments(self) -> None:
        self.place.flush()
        self.log.update_config(replace(CONFIG, retention_bytes=6_000))
        self.log.delete_old_segments(START_MS)
        self.log.update_config(CONFIG)
        self.place.directory.checkpoint()

    def step(self) -> Callable[[], None]:
        seldom = self.drop_old_segments if self.has_retention else self.damage_snapshot
        (chosen,) = self.rng.choices([self.append, self.cut, self.restart, seldom], [10, 6, 1, 2])
        return chosen


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)
    monkeypatch.setattr(truncated_producers, "BLOCK_BYTES", 400)


@pytest.mark.parametrize("has_retention", [False, True])
@pytest.mark.parametrize("has_transactions", [False, True])
@pytest.mark.parametrize("seed", range(examples(SEEDS_COUNT)))
def test_truncated_log_has_the_producer_state_of_a_replay(
    seed: int, has_transactions: bool, has_retention: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("blocks_backwards", "producers_at"):
        monkeypatch.setattr(truncated_producers, name, _recorded(getattr(truncated_producers, name), calls))
    life = FollowerLife(seed, has_transactions=has_transactions, has_retention=has_retention)
    for _ in range(STEPS_COUNT):
        life.step()()
        log = life.log
        assert view(log.producers) == view(life.expected())
        rebuilt = producers_at(life.place.disk, log.path, log.segments, log.log_end_offset, START_MS, 10**9)
        assert view(rebuilt) == view(life.expected())
        life.check_transactions()
    if has_transactions:
        assert "producers_at" in calls, "only a replay knows transactions"
    else:
        assert set(calls) == {"blocks_backwards"}, "nothing else needs one"


def test_check_finds_a_cut_that_keeps_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AbortedIndex, "truncate_to", lambda _self, _end_offset: None)
    for seed in range(10):
        life = FollowerLife(seed, has_transactions=True, has_retention=False)
        try:
            for _ in range(STEPS_COUNT):
                life.step()()
                life.check_transactions()
        except AssertionError:
            return
    pytest.fail("10 lives found nothing")


def _recorded(function: Callable[..., object], calls: list[str]) -> Callable[..., object]:
    @wraps(function)
    def recorded(*given: object) -> object:
        calls.append(function.__name__)
        return function(*given)

    return recorded
