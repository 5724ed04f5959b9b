"""A leader's log, split into runs of any size and appended by a follower, gives the same log.

And a power loss at every file operation of the follower leaves the flushed batches, and a prefix of the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.records.header import BASE_OFFSET, LEADER_EPOCH, LEADER_EPOCH_AT
from ottla.storage.directory import flushed_ends
from ottla.storage.log import flush as flush_module
from ottla.storage.log.log import Log
from ottla.testing.memory_disk import SYNC_KINDS, MemoryDisk, Operation
from tests.unit.storage.logs import reset_log, truncate_log

from .distinct_disks import DistinctDisks
from .log_model import START_MS, BatchShape, Stored, batch_of, epoch_starts_of, producers_of, split_log
from .log_place import LogPlace, append, partition, producers_in
from .property_settings import example_settings, examples, exhaustive, is_tried, timeout_s

EXAMPLES_COUNT = 60
SEEDS_COUNT = 4
WORKLOADS_COUNT = 4
STEPS_COUNT = 60
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))


def files_of(place: LogPlace, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    return {path: content for path, content in place.disk.files().items() if path.endswith(suffixes)}


def content_of(log: Log) -> bytes:
    """The bytes of all segments, one after the other."""
    return b"".join(segment.open().read_at(0, segment.size_bytes) for segment in log.segments)


class FollowerEqualsLeader(RuleBasedStateMachine):
    """A leader appends; a follower reads runs and may be killed or restarted in between."""

    @initialize()
    def start(self) -> None:
        self.leader = LogPlace(MemoryDisk())
        self.leader.create(1)
        self.follower = LogPlace(MemoryDisk())
        self.follower.create(1)
        self.epoch = 0
        self.number = 0
        self.sequences: dict[int, int] = {}
        self.was_stopped = False

    @rule(count=st.integers(1, 4), value_bytes=st.integers(0, 120), age_ms=st.integers(-500, 500))
    def append_batch(self, count: int, value_bytes: int, age_ms: int) -> None:
        self.number += 1
        append(self.leader.log(), BatchShape(count, value_bytes, START_MS + age_ms, self.number))

    @rule(producer_id=st.integers(1, 3), count=st.integers(1, 3))
    def append_of_producer(self, producer_id: int, count: int) -> None:
        self.number += 1
        sequence = self.sequences.get(producer_id, 2**31 - 2)
        self.sequences[producer_id] = (sequence + count) % 2**31
        append(self.leader.log(), BatchShape(count, 20, START_MS, self.number, producer_id, 0, sequence))

    @rule(step=st.integers(1, 3))
    def start_epoch(self, step: int) -> None:
        self.epoch += step
        self.leader.log().start_epoch(self.epoch)

    @rule(size_bytes_max=st.integers(1, 3_000))
    def fetch(self, size_bytes_max: int) -> None:
        leader, follower = self.leader.log(), self.follower.log()
        at = follower.log_end_offset
        run = leader.read(at, leader.log_end_offset, size_bytes_max, whole_first_batch=True)
        if run is None:
            assert at == leader.log_end_offset
            return
        data = memoryview(run.file.read_at(run.position, run.length_bytes))
        end_offset = follower.append_run(data, self.follower.clock.now_ms())
        assert end_offset == follower.log_end_offset > at

    @rule()
    def flush_follower(self) -> None:
        self.follower.flush()
        assert self.follower.log().stable_end == self.follower.log().log_end_offset

    @rule()
    def kill_follower(self) -> None:
        end_offset = self.follower.log().log_end_offset
        self.follower.reopen_on(self.follower.disk.kill())
        assert self.follower.log().log_end_offset == end_offset

    @rule()
    def restart_follower(self) -> None:
        self.follower.reopen_clean()
        self.was_stopped = True

    @invariant()
    def holds_a_beginning_of_the_leaders_log(self) -> None:
        leader, follower = self.leader.log(), self.follower.log()
        follower.check_invariants()
        content = content_of(follower)
        assert content_of(leader).startswith(content)
        batches = split_log(content)
        assert follower.log_end_offset == (batches[-1].next_offset if batches else 0)
        assert producers_in(follower) == producers_of(batches)
        assert [tuple(start) for start in follower.epoch_starts] == epoch_starts_of(batches, 0)
        assert follower.last_epoch() == (batches[-1].epoch if batches else -1)

    def teardown(self) -> None:
        """At the end both have the same segments, with the same indexes."""
        if not hasattr(self, "follower"):
            return
        while self.follower.log().log_end_offset < self.leader.log().log_end_offset:
            self.fetch(700)
        assert files_of(self.follower, (".log",)) == files_of(self.leader, (".log",))
        self.leader.directory.close()
        self.follower.directory.close()
        if self.was_stopped:
            # A stop adds the active segment's greatest timestamp to its time index.
            return
        suffixes = (".index", ".timeindex")
        assert files_of(self.follower, suffixes) == files_of(self.leader, suffixes)


TestFollowerEqualsLeader = FollowerEqualsLeader.TestCase
TestFollowerEqualsLeader.settings = example_settings(EXAMPLES_COUNT, steps_count=40)


class FlushedRecordLost(AssertionError):
    """A batch that a follower had reported as stable is missing after a crash."""


def history_up_to(found: list[Stored], history: list[Stored]) -> list[Stored] | None:
    """The history up to the end of the found batches, if they are a part of it; a recorded start hides earlier ones."""
    if not found:
        return []
    first = next((place for place, stored in enumerate(history) if stored == found[0]), None)
    if first is None or found != history[first : first + len(found)]:
        return None
    return history[: first + len(found)]


class FollowerLife:
    """A follower of a leader that is only a list of batches, with gaps where `is_compacted`."""

    def __init__(self, seed: int, *, is_compacted: bool) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryDisk()
        self.place = LogPlace(self.disk)
        self.place.create(1)
        self.is_compacted = is_compacted
        self.sent: list[Stored] = []
        # The possible histories, of which the log may have a prefix: until the next flush a power loss may undo a cut.
        self.histories = [self.sent]
        self.stable_end = 0
        # The start of the leader's history.
        self.begin = 0
        self.epoch = 0
        self.number = 0

    def run(self, visit: Callable[[str], None]) -> None:
        """Call `visit` before each file operation, and at the end."""

        def before(operation: Operation) -> None:
            visit(f"step {self.number} before {operation}")

        self.disk.on_operation = before
        for self.number in range(STEPS_COUNT):
            kind = self.rng.choices(["fetch", "flush", "cut", "reset"], [14, 6, 1, 1])[0]
            if kind == "fetch":
                self._fetch()
            elif kind == "flush":
                self.place.flush()
                self.stable_end = self.place.log().stable_end
                self.histories = [self.sent]
            elif self.sent:
                self._change_leader(is_behind=kind == "reset")
        self.disk.on_operation = None
        visit("the end")

    def _fetch(self) -> None:
        if self.rng.random() < 0.2:
            self.epoch += 1
        batches = [self._next_batch() for _ in range(self.rng.randint(1, 8))]
        run = b"".join(stored.data for stored in batches)
        self.place.log().append_run(memoryview(run), START_MS, may_have_gaps=self.is_compacted)

    def _change_leader(self, *, is_behind: bool) -> None:
        """Another leader's history ends with fewer batches, or has none of this log's batches any more."""
        log = self.place.log()
        self.epoch += 1
        kept_count = self.rng.randrange(max(0, len(self.sent) - 6), len(self.sent))
        self.sent = [] if is_behind else self.sent[:kept_count]
        if is_behind:
            self.begin = max(0, log.log_end_offset + self.rng.randint(-3, 50))
        self.histories.append(self.sent)
        self.stable_end = min(self.stable_end, 0 if is_behind else self._end())
        if is_behind:
            reset_log(log, self.begin)
        else:
            truncate_log(log, self._end())
        assert log.log_end_offset == self._end()

    def _end(self) -> int:
        return self.sent[-1].next_offset if self.sent else self.begin

    def _next_batch(self) -> Stored:
        base_offset = self._end()
        if self.is_compacted and self.rng.random() < 0.3:
            base_offset += self.rng.randint(1, 9)
        shape = BatchShape(self.rng.randint(1, 3), self.rng.randrange(100), START_MS + self.number, base_offset)
        if self.rng.random() < 0.4:
            shape = shape._replace(producer_id=self.rng.randint(1, 2), producer_epoch=0, base_sequence=base_offset)
        batch = batch_of(shape)
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, self.epoch)
        stored = Stored.of(bytes(batch))
        self.sent.append(stored)
        return stored

    @property
    def state(self) -> tuple[int, ...]:
        """Another one after each change of what `check` compares a disk with."""
        return (self.number, self.begin, self.stable_end, len(self.sent), len(self.histories))

    def check(self, disk: MemoryDisk, label: str) -> None:
        """Open the log after a crash: a prefix of the leader's batches, at least up to the stable end."""
        place = LogPlace(disk)
        assert not place.directory.failed, f"{label}: {place.directory.failed}"
        if partition(0) not in place.directory.logs:
            raise FlushedRecordLost(f"{label}: the log is gone")
        log = place.log()
        log.check_invariants()
        found = split_log(content_of(log))
        told = next((told for history in self.histories if (told := history_up_to(found, history)) is not None), None)
        assert told is not None, label
        assert log.log_end_offset == (found[-1].next_offset if found else log.log_start_offset), label
        if log.log_end_offset < self.stable_end:
            raise FlushedRecordLost(f"{label}: {log.log_end_offset} is left, {self.stable_end} was stable")
        assert producers_in(log) == producers_of(told), label
        starts = epoch_starts_of(told, log.log_start_offset)
        known = [tuple(start) for start in log.epoch_starts]
        assert [start for start in known if start[1] > log.log_start_offset] == [
            start for start in starts if start[1] > log.log_start_offset
        ], label
        assert log.last_epoch() == (told[-1].epoch if told else -1), label
        place.directory.abandon()


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


@exhaustive
@pytest.mark.parametrize("syncs_one_by_one_max", [0, 1_000])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("seed", range(WORKLOADS_COUNT))
def test_flushed_batches_of_a_follower_survive_a_power_loss_at_every_operation(
    seed: int, is_compacted: bool, syncs_one_by_one_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_module, "SYNCS_ONE_BY_ONE_MAX", syncs_one_by_one_max)
    life = FollowerLife(seed, is_compacted=is_compacted)
    distinct = DistinctDisks()
    crashes_count = 0

    def visit(label: str) -> None:
        nonlocal crashes_count
        for number in range(examples(SEEDS_COUNT)):
            crashes_count += 1
            if not is_tried(crashes_count):
                continue
            after = life.disk.crash(random.Random(f"{crashes_count} {number}"))
            if distinct.is_new(after, life.state):
                life.check(after, label)

    life.run(visit)
    assert crashes_count > 100


@pytest.mark.parametrize("is_compacted", [False, True])
def test_check_finds_a_loss_without_syncs(is_compacted: bool) -> None:
    life = FollowerLife(0, is_compacted=is_compacted)
    life.disk.ignored_syncs = SYNC_KINDS
    rng = random.Random(0)
    with pytest.raises(AssertionError) as found:
        life.run(lambda label: life.check(life.disk.crash(rng), label))
    assert isinstance(found.value, FlushedRecordLost) or "damaged at position" in str(found.value)
