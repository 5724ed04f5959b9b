from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from tests.peers import process_usage

BROKERS: Final = 3
HOST: Final = "127.0.0.1"
# Beyond it the run has failed: a broker that is killed instead recovers its logs first when it starts again.
END_TIMEOUT_S: Final = 180.0

# What both clusters are given beyond their defaults; the files of deleted topics are to go soon (bench/peers/peer.py).
SETTINGS: Final[Mapping[str, str]] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}


class ClusterPeer(Protocol):
    """Three running brokers, by node id.  What is started or ended is not waited for, unless it says so."""

    @property
    def name(self) -> str: ...
    @property
    def ports(self) -> Mapping[int, int]:
        """Of the brokers that run now; a broker keeps its port."""
        ...

    def pids(self) -> Mapping[str, int]:
        """Of every process that the cluster consists of, and that runs."""
        ...

    def data_dir(self, node_id: int) -> Path: ...
    def launch(self, node_id: int) -> None: ...
    def kill(self, node_id: int) -> None:
        """SIGKILL, and wait for the end."""

    def terminate(self, node_id: int) -> None:
        """SIGTERM."""

    def wait_ended(self, node_id: int) -> None:
        """Until a stopped broker has ended.  Raises `NotAnswering` when it does not."""

    def pause(self, node_id: int) -> None: ...
    def resume(self, node_id: int) -> None: ...
    def stop(self) -> None:
        """All of it, cleanly, and wait.  Raises `NotAnswering` when a broker does not end in time."""

    def start(self) -> None:
        """All of it once more, brokers at the same time."""

    def controller(self) -> int:
        """The node id of the active controller, -1 where there is none at all."""
        ...


class StartCluster(Protocol):
    """A fresh cluster that keeps its data below `work_dir`, while its context is open."""

    def __call__(self, work_dir: Path) -> AbstractContextManager[ClusterPeer]: ...


def cpu_seconds(cluster: ClusterPeer) -> float:
    return sum(process_usage.cpu_seconds(pid) for pid in cluster.pids().values())


def memory_mb(cluster: ClusterPeer) -> dict[str, float]:
    """Resident memory of all processes together, and of each of its own."""
    each = {name: process_usage.rss_bytes(pid) / 1e6 for name, pid in cluster.pids().items()}
    return {"rss_mb": sum(each.values())} | {f"rss_mb of {name}": value for name, value in each.items()}


def idle_cores(cluster: ClusterPeer, seconds: float) -> float:
    """How many cores the cluster takes while no client sends requests."""
    before = cpu_seconds(cluster)
    time.sleep(seconds)
    return (cpu_seconds(cluster) - before) / seconds
