"""One run: limits, fresh starts, then every scenario with the peers in turn, round by round."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import measure_limits, warm_memory
from bench.outcome import Line, Results
from bench.peers.names import APACHE_KAFKA, PEERS
from bench.peers.peer import Peer
from bench.scenarios import fresh_start
from bench.scenarios.fresh_start import measure_fresh_start
from bench.scenarios.scenario import RSS_MB, STARTUP_S, Figures, Scenario
from bench.table import HEADINGS, limits_rows, line_row
from bench.warmup import warm_up

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
