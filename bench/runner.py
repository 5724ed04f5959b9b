"""One run: limits, fresh starts, then every scenario with the peers in turn, round by round."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import measure_limits, warm_memory
from bench.outcome import Line, Results
from bench.peers.names import APACHE_KAFKA, PEERS
from bench.peers.peer import Peer
from bench.raw_client.load import FetchLoad, ProduceLoad, put_load
from bench.scenarios import fresh_start
from bench.scenarios.fresh_start import measure_fresh_start
from bench.scenarios.scenario import RSS_MB, STARTUP_S, Figures, Scenario
from bench.scenarios.topics import create_topic, delete_topic
from bench.table import HEADINGS, limits_rows, line_row

TOPIC: Final = "warm-up"
SLICE_S: Final = 2.0
STEADY_SLICES: Final = 3
STEADY_WITHIN: Final = 0.10
WARM_S_MAX: Final = 90
OTHER_SHAPES_S: Final = 4.0


def is_steady(rates: list[float]) -> bool:
    """The last three slices differ by at most a tenth."""
    last = rates[-STEADY_SLICES:]
    return len(last) == STEADY_SLICES and max(last) - min(last) <= STEADY_WITHIN * max(last)


def warm_up(peer: Peer, least_s: float, say: Callable[[str], None]) -> list[float]:
    """Small batches for at least `least_s` and until the rate is steady, then the other shapes.

    Apache Kafka's JVM compiles what runs often, so that it is measured only when its rate has become steady.  Returns
    the rate (requests/s) of each slice.
    """
    create_topic(peer, TOPIC, 1)
    rates: list[float] = []
    started = time.monotonic()
    while (elapsed_s := time.monotonic() - started) < WARM_S_MAX:
        if elapsed_s >= least_s and is_steady(rates):
            break
        small = ProduceLoad(batch_records=1, in_flight=5, seconds=SLICE_S, warmup_s=0)
        rates.append(put_load(small, peer.port, TOPIC).requests_per_s)
    steadiness = "steady" if is_steady(rates) else "NOT steady, the machine is busy"
    say(f"{peer.name} warm after {elapsed_s:.0f} s ({steadiness}): " + " ".join(f"{rate:,.0f}" for rate in rates))
    for batch_records, in_flight in ((1, 100), (50, 20), (4000, 5)):
        load = ProduceLoad(batch_records, in_flight, seconds=OTHER_SHAPES_S, warmup_s=0)
        put_load(load, peer.port, TOPIC)
    for partition_bytes_max in (64 << 10, 1 << 20):
        put_load(FetchLoad(partition_bytes_max, seconds=OTHER_SHAPES_S, warmup_s=0), peer.port, TOPIC)
    delete_topic(peer, TOPIC)
    return rates


# The largest lines keep their topic over the rounds: three peers, some 1.5 GB in each of three rounds, and margin.
FREE_BYTES_MIN: Final = 20_000_000_000

# Above it another process is busy; the peers themselves are not running yet.
LOAD_MAX: Final = 0.7

MEMORY_LOADED: Final = "memory-loaded"


class NotEnoughDisk(RuntimeError):
    pass


@dataclass(frozen=True, slots=True)
class Plan:
    peers: tuple[str, ...]
    scenarios: Sequence[Scenario]
    has_fresh_start: bool
    rounds: int
    warm_s: float
    work_dir: Path


class Runner:
    """Fills `results`; `say` shows progress, `show` the rows as they come."""

    def __init__(self, plan: Plan, results: Results, say: Callable[[str], None], show: Callable[[str], None]) -> None:
        self._plan = plan
        self._results = results
        self._say = say
        self._show = show

    def run(self) -> None:
        self._check_disk()
        self._measure_limits()
        self._say("warming the machine's memory")
        warm_memory(self._plan.work_dir)
        self._show(HEADINGS)
        if self._plan.has_fresh_start:
            self._measure_fresh_starts()
        if self._plan.scenarios:
            self._measure_scenarios()
        self._measure_limits()

    def _measure_limits(self) -> None:
        """At both ends of the run, since the machine drifts."""
        load = os.getloadavg()[0]
        if not self._results.limits and load > LOAD_MAX:
            self._say(f"others use this machine (load average {load:.1f}): figures and ratios will not be reliable")
        self._results.limits.append({"load_average": load} | measure_limits(self._plan.work_dir))
        self._show(limits_rows(self._results)[-1])

    def _measure_fresh_starts(self) -> None:
        rounds: dict[str, list[Figures]] = {name: [] for name in self._plan.peers}
        for round_index in range(self._plan.rounds):
            for name in self._in_turn(round_index):
                self._say(f"{fresh_start.NAME} round {round_index + 1} of {self._plan.rounds}: {name}")
                rounds[name].append(measure_fresh_start(PEERS[name], self._plan.work_dir))
        self._finish(fresh_start.NAME, STARTUP_S, rounds)

    def _measure_scenarios(self) -> None:
        with ExitStack() as running:
            peers = {name: running.enter_context(PEERS[name](self._plan.work_dir)) for name in self._plan.peers}
            if APACHE_KAFKA in peers:
                self._say(f"{APACHE_KAFKA}: warming up for {self._plan.warm_s:g} s or more")
                self._results.about["warm_up_requests_per_s"] = [
                    round(rate) for rate in warm_up(peers[APACHE_KAFKA], self._plan.warm_s, self._say)
                ]
            for scenario in self._plan.scenarios:
                self._measure_scenario(scenario, peers)
            self._finish(
                MEMORY_LOADED,
                RSS_MB,
                {
                    name: [{RSS_MB: peer.rss_bytes() / 1e6, "rss_peak_mb": peer.rss_peak_bytes() / 1e6}]
                    for name, peer in peers.items()
                },
            )

    def _measure_scenario(self, scenario: Scenario, peers: dict[str, Peer]) -> None:
        self._check_disk()
        for peer in peers.values():
            scenario.prepare(peer)
        rounds: dict[str, list[Figures]] = {name: [] for name in peers}
        for round_index in range(self._plan.rounds):
            for name in self._in_turn(round_index):
                self._say(f"{scenario.name} round {round_index + 1} of {self._plan.rounds}: {name}")
                rounds[name].append(scenario.measure(peers[name]))
        for peer in peers.values():
            scenario.clean_up(peer)
        self._finish(scenario.name, scenario.headline, rounds)

    def _in_turn(self, round_index: int) -> tuple[str, ...]:
        """Every second round in the other direction: no peer always follows the same one."""
        return self._plan.peers if round_index % 2 == 0 else self._plan.peers[::-1]

    def _finish(self, scenario: str, headline: str, rounds: dict[str, list[Figures]]) -> None:
        lines = [Line(scenario, name, headline, figures) for name, figures in rounds.items()]
        self._results.lines += lines
        for line in lines:
            self._show(line_row(self._results, line))

    def _check_disk(self) -> None:
        free_bytes = shutil.disk_usage(self._plan.work_dir).free
        if free_bytes < FREE_BYTES_MIN:
            needed, found = FREE_BYTES_MIN / 1e9, free_bytes / 1e9
            raise NotEnoughDisk(f"{self._plan.work_dir} has {found:.0f} GB free, {needed:.0f} are needed: --work-dir")
