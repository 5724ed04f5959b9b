"""Three brokers (or more) of this tree and a ZooKeeper, as `ottla cluster up` starts them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.answering import NotAnswering

from bench.cluster.peer import BROKERS, END_TIMEOUT_S, SETTINGS
from ottla.testing.cluster import RunningCluster

NO_CONTROLLER: Final = -1


class OttlaCluster:
    def __init__(self, policy: str, home: Path, brokers: int = BROKERS) -> None:
        self.name = f"ottla-{policy}"
        self._cluster = RunningCluster(
            brokers, home, settings={**SETTINGS, "log.flush.policy": policy}, has_zookeeper=True
        )

    @property
    def ports(self) -> Mapping[int, int]:
        return {node_id: broker.port for node_id, broker in self._cluster.brokers.items() if broker.is_running}

    def pids(self) -> Mapping[str, int]:
        running = {f"broker {id}": each.pid for id, each in self._cluster.brokers.items() if each.is_running}
        return running | ({"ZooKeeper": self._cluster.zookeeper.pid} if self._cluster.zookeeper.is_running else {})

    def data_dir(self, node_id: int) -> Path:
        return self._cluster.broker(node_id).data_dir

    def launch(self, node_id: int) -> None:
        self._cluster.broker(node_id).launch()

    def kill(self, node_id: int) -> None:
        self._cluster.broker(node_id).kill()

    def terminate(self, node_id: int) -> None:
        self._cluster.broker(node_id).terminate()

    def wait_ended(self, node_id: int) -> None:
        give_up_s = time.monotonic() + END_TIMEOUT_S
        while self._cluster.broker(node_id).is_running:
            if time.monotonic() > give_up_s:
                raise NotAnswering(f"broker {node_id} has not stopped within {END_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def pause(self, node_id: int) -> None:
        self._cluster.broker(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._cluster.broker(node_id).resume()

    def stop(self) -> None:
        running = list(self.ports)
        for node_id in running:
            self.terminate(node_id)
        for node_id in running:
            self.wait_ended(node_id)
        # ZooKeeper, which the brokers' last changes went to.
        self._cluster.stop()

    def start(self) -> None:
        self._cluster.start()

    def controller(self) -> int:
        return NO_CONTROLLER

    def close(self) -> None:
        self._cluster.close()


@contextmanager
def start_ottla_cluster(policy: str, work_dir: Path, brokers: int = BROKERS) -> Iterator[OttlaCluster]:
    with tempfile.TemporaryDirectory(prefix=f"ottla-{policy}-", dir=work_dir, ignore_cleanup_errors=True) as home:
        cluster = OttlaCluster(policy, Path(home), brokers)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
