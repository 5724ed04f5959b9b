"""Two broker processes of Ottla on one machine, which share a tree that a third process holds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers import process_usage
from tests.peers.answering import NotAnswering

from bench.peers.peer import HOUSEKEEPING
from bench.wire import NO_SETTINGS
from ottla.model.errors import OttlaError
from ottla.testing.cluster import RunningCluster

PROCESSES: Final = 2
NAME: Final = f"ottla-{PROCESSES}p"
# As Apache Kafka has them on one node; the topics of the benchmark have one replica, too.
ONE_REPLICA: Final = {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}


class OttlaProcesses:
    """Policy `os`.  Processor time and memory are of all processes together; pages that they share count each time."""

    name = NAME

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.data_dir = home
        self.startup_s = 0.0
        fixed = {"log.flush.policy": "os"} | HOUSEKEEPING | ONE_REPLICA
        self._cluster = RunningCluster(PROCESSES, home, settings=fixed | dict(settings))

    @property
    def port(self) -> int:
        """Of the first process; Metadata names the others."""
        return next(iter(self._cluster.brokers.values())).port

    def start(self) -> None:
        started = time.monotonic()
        try:
            self._cluster.start()
        except OttlaError as problem:
            raise NotAnswering(str(problem)) from problem
        self.startup_s = time.monotonic() - started

    def stop(self) -> None:
        self._cluster.stop()

    def close(self) -> None:
        self._cluster.close()

    def cpu_seconds(self) -> float:
        return sum(process_usage.cpu_seconds(pid) for pid in self._pids())

    def rss_bytes(self) -> int:
        return sum(process_usage.rss_bytes(pid) for pid in self._pids())

    def rss_peak_bytes(self) -> int:
        return sum(process_usage.rss_peak_bytes(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        return [self._cluster.tree.pid, *(broker.pid for broker in self._cluster.brokers.values())]


@contextmanager
def start_ottla_processes(work_dir: Path, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[OttlaProcesses]:
    """Fresh ones in a directory of their own below `work_dir`; nothing of them is left afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=work_dir, ignore_cleanup_errors=True) as home:
        peer = OttlaProcesses(Path(home), settings)
        try:
            peer.start()
            yield peer
        finally:
            peer.close()
