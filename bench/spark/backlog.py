"""A backlog is loaded into a lake table beside live topics: memory, the live consumers' latency, the rows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from deltalake import DeltaTable
from tests.peers.process_usage import rss_bytes

from bench.client.contenders.names import OTTLA
from bench.client.matrix import LZ4
from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import LoadFailed
from bench.scenarios.scenario import Figures
from bench.scenarios.topics import count_records, settle_disk
from bench.spark.backlog_table import BACKLOG, IDLE, LOADING, OTHER_PER_S, OTHER_TAIL, SAME_PER_S, SAME_TAIL
from bench.spark.child import Child
from bench.spark.filling import PARTITIONS, fill_topic, value_bytes_in
from bench.spark.live_tails import VALUE_BYTES, LiveTail, Tail, live_tails
from bench.spark.matrix import VARIABLE, Shape
from bench.spark.memory import MemoryWatch, held_apart, page_cache_bytes
from bench.spark.processes import SparkProcesses
from bench.study import ROUND, Observed, StudyOptions, say
from bench.wire import Wire


def check_each_once(target: Path, end_offsets: Mapping[int, int]) -> int:
    """Partitions begin at offset 0.  The sum of the values' lengths.  Raises LoadFailed with what is wrong."""
    # A bit would do; a byte for each offset is simpler.
    times_seen = {partition: np.zeros(end, np.uint8) for partition, end in end_offsets.items()}
    rows_count = dict.fromkeys(end_offsets, 0)
    value_bytes = 0
    for batch in DeltaTable(str(target)).to_pyarrow_dataset().to_batches(columns=["partition", "offset", "value"]):
        value_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions).tolist():
            mine = offsets[partitions == partition]
            end = end_offsets.get(partition, 0)
            if mine.min() < 0 or mine.max() >= end:
                raise LoadFailed(f"partition {partition}: offsets {mine.min()}..{mine.max()}, but it ends at {end}")
            rows_count[partition] += len(mine)
            times_seen[partition][mine] = 1
    for partition, seen in times_seen.items():
        distinct = int(np.count_nonzero(seen))
        if not distinct == rows_count[partition] == len(seen):
            raise LoadFailed(
                f"partition {partition}: {rows_count[partition]} rows with {distinct} offsets of {len(seen)}"
            )
    return value_bytes


# Values of 75 to 225 bytes, and keys of 1 to 8 digits.
SHAPE: Final = Shape(VARIABLE, 150, LZ4)
ROWS: Final = 20_000_000
QUICK_ROWS: Final = 1_000_000
IDLE_S: Final = 15.0
QUICK_IDLE_S: Final = 4.0
LIVE_TOPIC: Final = "live"
# Members are not waited for: a consumer's start is no part of any figure.
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
START_TIMEOUT_S: Final = 300
LOAD_TIMEOUT_S: Final = 1800


class BacklogRun:
    """One broker and one backlog; each round has a new table and a new driver."""

    def __init__(self, options: StudyOptions, observed: Observed, peer: OttlaPeer) -> None:
        self._observed = observed
        self._peer = peer
        self._work_dir = options.work_dir
        self._bootstrap = f"127.0.0.1:{peer.port}"
        self._rows = QUICK_ROWS if options.is_quick else ROWS
        self._idle_s = QUICK_IDLE_S if options.is_quick else IDLE_S

    def fill(self) -> None:
        say(f"filling the backlog with {self._rows:,} records")
        with Wire(self._peer.port) as wire:
            wire.create_topic(BACKLOG, PARTITIONS)
            wire.create_topic(LIVE_TOPIC, PARTITIONS)
        fill_topic(self._bootstrap, BACKLOG, SHAPE, self._rows)
        settle_disk()

    def measure(self, round_index: int) -> None:
        target = self._work_dir / "backlog-lake"
        shutil.rmtree(target, ignore_errors=True)
        tails = [
            Tail(OTHER_TAIL, LIVE_TOPIC, PARTITIONS, OTHER_PER_S),
            Tail(SAME_TAIL, BACKLOG, PARTITIONS, SAME_PER_S),
        ]
        words = {"bootstrap": self._bootstrap, "topic": BACKLOG, "target": str(target)}
        log = self._work_dir / "load.log"
        with (
            Child("bench.spark.load_process", words, log) as driver,
            live_tails(self._bootstrap, tails, self._work_dir) as opened,
        ):
            with SparkProcesses(int(driver.answer(START_TIMEOUT_S)["jvm_pid"])) as processes:
                phases = {IDLE: self._idle()}
                loaded, figures = self._load(driver, processes)
            phases[LOADING] = [loaded["began_ns"], loaded["ended_ns"]]
            self._observed.add(BACKLOG, OTTLA, {**figures, ROUND: round_index})
            self._add_delays(opened, phases, round_index)
        self._check(target, loaded)
        shutil.rmtree(target)

    def _idle(self) -> list[int]:
        began_ns = time.monotonic_ns()
        time.sleep(self._idle_s)
        return [began_ns, time.monotonic_ns()]

    def _load(self, driver: Child, processes: SparkProcesses) -> tuple[dict[str, Any], Figures]:
        broker_s = self._peer.cpu_seconds()
        before = processes.usage()
        cache_before = page_cache_bytes()
        with MemoryWatch(lambda: self._memory(driver.pid, processes)) as watch:
            driver.tell({})
            loaded = driver.answer(LOAD_TIMEOUT_S)
        rows = int(loaded["rows"])
        seconds = (loaded["ended_ns"] - loaded["began_ns"]) / 1e9
        return loaded, {
            **processes.usage().since(before, rows),
            "seconds": seconds,
            "rows": rows,
            "rows_per_s": rows / seconds,
            "commits": loaded["commits"],
            "files": loaded["files"],
            "broker_cpu_us_per_row": (self._peer.cpu_seconds() - broker_s) / rows * 1e6,
            **watch.figures(),
            "page_cache_before_mb": cache_before / 1e6,
            "page_cache_after_mb": page_cache_bytes() / 1e6,
        }

    def _memory(self, driver_pid: int, processes: SparkProcesses) -> Mapping[str, int]:
        jvm, workers = processes.rss()
        broker, broker_files = held_apart(self._peer.process.pid)
        driver = rss_bytes(driver_pid)
        sizes = {"driver": driver, "jvm": jvm, "workers": workers, "broker": broker}
        return {**sizes, "all": sum(sizes.values()), "broker_files": broker_files}

    def _add_delays(self, opened: list[LiveTail], phases: Mapping[str, list[int]], round_index: int) -> None:
        for live in opened:
            live.stop()
        for live in opened:
            for name, figures in live.figures(phases).items():
                self._observed.add(live.tail.name, name, {**figures, ROUND: round_index})

    def _check(self, target: Path, loaded: Mapping[str, Any]) -> None:
        """Of the backlog and of what the live producer had added when the load began."""
        ends = {int(partition): int(offset) for partition, offset in loaded["end_offsets"].items()}
        total = sum(ends.values())
        if not self._rows <= total <= count_records(self._peer, BACKLOG, PARTITIONS):
            raise LoadFailed(f"the load ended at {ends}, which is {total} of at least {self._rows}")
        wanted = value_bytes_in(SHAPE, self._rows) + (total - self._rows) * VALUE_BYTES
        found = check_each_once(target, ends)
        if (loaded["rows"], found) != (total, wanted):
            raise LoadFailed(
                f"{loaded['rows']} rows were loaded, with values of {found} bytes; {total} and {wanted} are right"
            )
        say(f"each of {total:,} offsets is in the table once")


def run_backlog(options: StudyOptions, observed: Observed) -> None:
    rounds = [each for each in range(options.rounds) if not observed.has(BACKLOG, OTTLA, each)]
    if not rounds:
        return
    with observed.may_fail(BACKLOG), start_ottla("os", options.work_dir, SETTINGS) as peer:
        run = BacklogRun(options, observed, peer)
        run.fill()
        for round_index in rounds:
            say(f"backlog, round {round_index + 1} of {options.rounds}")
            with observed.may_fail(f"{BACKLOG}, round {round_index + 1}"):
                run.measure(round_index)
