"""./dev bench soak: an hour of mixed load on two broker processes, one of which is killed once a minute."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.peers import process_usage

from bench.machine import describe_commit, describe_machine
from bench.peers.ottla_processes import PROCESSES, OttlaProcesses, start_ottla_processes
from bench.raw_client.build import BUILD_DIR
from bench.soak.drift import Minute, ProcessFigures, judge, standstills
from bench.soak.loads import REPLICAS, Tally, all_loads, make_topics
from bench.soak.picture import picture
from bench.study import percentile, say

NAME: Final = "soak"
ROOT: Final = Path(__file__).parents[2]
RESULTS_DIR: Final = ROOT / "bench" / "results"
MINUTES: Final = 60
KILLED_AT_S: Final = 20.0
LOOK_EVERY_S: Final = 2.0
HOST: Final = "127.0.0.1"
SETTINGS: Final = {
    "log.flush.policy": "ack",
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": "1",
    # Hours of upkeep in one: deletions, retention and compaction as often as they have work.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=MINUTES, help=f"({MINUTES})")
    parser.add_argument("--without-kills", action="store_true", help="both processes run to the end")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the picture there, too")
    parser.add_argument("--work-dir", type=Path, default=BUILD_DIR, help="where data goes")
    parser.add_argument("--results-dir", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    if options.minutes < 1:
        parser.error("--minutes: at least 1")
    return options


class Soak:
    """One run: its processes, its loads, and the minutes so far."""

    def __init__(self, processes: OttlaProcesses, has_kills: bool) -> None:
        self._processes = processes
        self._bootstrap = f"{HOST}:{processes.port}"
        self._has_kills = has_kills
        self._victim = max(processes.broker_pids())
        self._tally = Tally()
        self.minutes: list[Minute] = []

    def run(self, minutes: int) -> None:
        make_topics(self._bootstrap)
        with ExitStack() as stack:
            for load in all_loads(self._bootstrap, self._tally):
                stack.enter_context(load)
            started_s = time.monotonic()
            for index in range(minutes):
                self.minutes.append(self._minute(started_s + 60 * index))
                say(f"minute {index + 1} of {minutes}: {_summary(self.minutes[-1])}")

    def _minute(self, starts_s: float) -> Minute:
        looks: list[dict[str, ProcessFigures]] = []
        kill_at_s = starts_s + KILLED_AT_S if self._has_kills else math.inf
        # A look that took longer than a minute makes the next one short, and never empty.
        while not looks or time.monotonic() < starts_s + 60:
            looks.append({name: _look(pid) for name, pid in self._pids().items()})
            if time.monotonic() >= kill_at_s:
                kill_at_s = math.inf
                self._kill()
            time.sleep(max(0.0, min(starts_s + 60 - time.monotonic(), LOOK_EVERY_S)))
        counts, latencies_ms = self._tally.take()
        return Minute(
            processes={name: _median([look[name] for look in looks]) for name in looks[0]},
            p50_ms=percentile(latencies_ms, 0.5) if latencies_ms else None,
            p99_ms=percentile(latencies_ms, 0.99) if latencies_ms else None,
            max_ms=max(latencies_ms, default=None),
            counts=dict(sorted(counts.items())),
            disk_mb=_size_bytes(self._processes.data_dir) / 1e6,
        )

    def _kill(self) -> None:
        """The supervisor starts the broker again."""
        os.kill(self._processes.broker_pids()[self._victim], signal.SIGKILL)
        self._tally.count("kills")

    def _pids(self) -> dict[str, int]:
        """Of what runs to the end; the loads' own process shows what the clients keep."""
        brokers = {
            f"broker {node_id}": pid
            for node_id, pid in self._processes.broker_pids().items()
            if not (self._has_kills and node_id == self._victim)
        }
        return brokers | {"supervisor": self._processes.supervisor_pid, "clients": os.getpid()}


def _look(pid: int) -> ProcessFigures:
    return ProcessFigures(process_usage.rss_bytes(pid) / 1e6, len(os.listdir(f"/proc/{pid}/fd")))


def _median(looks: list[ProcessFigures]) -> ProcessFigures:
    return ProcessFigures(
        statistics.median(look.memory_mb for look in looks), statistics.median(look.descriptors for look in looks)
    )


def _size_bytes(directory: Path) -> int:
    size_bytes = 0
    for path in directory.rglob("*.log"):
        try:
            size_bytes += path.stat().st_size
        except FileNotFoundError:
            continue  # retention has just removed it
    return size_bytes


def _summary(minute: Minute) -> str:
    memory = ", ".join(
        f"{name} {each.memory_mb:.0f} MB {each.descriptors:.0f}" for name, each in minute.processes.items()
    )
    counts = ", ".join(f"{what} {count}" for what, count in minute.counts.items())
    latency = (
        "no acknowledgement" if minute.p99_ms is None else f"p50 {minute.p50_ms:.1f} ms, p99 {minute.p99_ms:.1f} ms"
    )
    return f"{latency}; {memory}; log {minute.disk_mb:.0f} MB; {counts}"


def run_soak(arguments: list[str]) -> int:
    """Exit status 0: nothing has drifted or stood still; 1: something has, or too few minutes could be judged."""
    options = parse(arguments)
    started = datetime.now(UTC).replace(microsecond=0)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    options.results_dir.mkdir(parents=True, exist_ok=True)
    about = {
        "started": started.isoformat(),
        **describe_commit(ROOT),
        "machine": describe_machine(options.work_dir),
        "minutes": options.minutes,
        "has_kills": not options.without_kills,
        "settings": SETTINGS,
    }
    stem = options.results_dir / f"{started:%Y%m%dT%H%M%SZ}-{str(about['commit'])[:8]}-{NAME}"
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=options.work_dir, ignore_cleanup_errors=True) as home,
        start_ottla_processes(Path(home), SETTINGS) as processes,
    ):
        soak = Soak(processes, has_kills=not options.without_kills)
        try:
            soak.run(options.minutes)
        finally:
            verdict = _write(soak.minutes, about, stem, options.picture)
    return verdict


def _write(minutes: list[Minute], about: dict[str, object], stem: Path, also: Path | None) -> int:
    """Also of a run that was stopped: its minutes are measured."""
    judgements = judge(minutes)
    still = standstills(minutes)
    lines = [*(judgement.line() for judgement in judgements), *still] or ["too few minutes to judge"]
    lost = sum(minute.counts.get("events lost", 0) for minute in minutes)
    document = {"about": about, "minutes": [minute.document() for minute in minutes], "verdict": lines, "lost": lost}
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    title = f"Soak of {len(minutes)} minutes, {PROCESSES} processes, commit {str(about['commit'])[:8]}"
    drawn = picture(minutes, title)
    for path in (stem.with_suffix(".svg"), also):
        if path is not None:
            path.write_text(drawn)
    print("\n".join([*lines, f"messages that were given up: {lost}"]))
    say(f"written to {stem}.json and .svg")
    return 0 if judgements and lost == 0 and not still and not any(each.has_drifted for each in judgements) else 1
