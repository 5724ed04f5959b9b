"""The places of a run's processes when it has separate namespaces: each broker has a network address and a disk."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.cluster.broker_disk import BrokerDisk
from tests.cluster.network import Network

ZOOKEEPER: Final = "zookeeper"
CLIENTS: Final = "clients"
ZOOKEEPER_PORT: Final = 2181


def broker_name(node_id: int) -> str:
    return f"broker-{node_id}"


class Site:
    """For one cluster after the other; `cluster_directory` is `RunningCluster.data_dir`, where the disks are mounted.

    Needs `isolation.enter` before.
    """

    def __init__(self, network: Network, directory: Path, cluster_directory: Path, node_ids: Iterable[int]) -> None:
        self.network = network
        self._directory = directory
        self.disks = {
            node_id: BrokerDisk(directory / f"broker-{node_id}.xfs", cluster_directory / broker_name(node_id))
            for node_id in node_ids
        }
        self._unmounting = ExitStack()

    def __enter__(self) -> Site:
        self._directory.mkdir(parents=True)
        try:
            for disk in self.disks.values():
                disk.make()
                self._unmounting.callback(disk.unmount)
        except BaseException:
            self._unmounting.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.network.open_all()
        self._unmounting.close()

    def keep(self, directory: Path) -> None:
        """Copy all disks, to find the cause of a failure: the mounts end with the run."""
        for node_id, disk in self.disks.items():
            disk.copy_to(directory / f"{broker_name(node_id)}-data")
