"""Brokers of Apache Kafka with a separate controller (KRaft), in place of a `RunningCluster` with its ZooKeeper.

The controller is at ZooKeeper's place, so that what cuts a broker off from the one cuts it off from the other.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ottla.testing.broker import READY_WITHIN_S, BrokerDidNotStart, RunningBroker
from ottla.testing.cluster import RunningCluster
from ottla.testing.running import Place
from ottla.testing.zookeeper import RunningZooKeeper
from tests.peers.answering import NotAnswering, wait_until_answering
from tests.peers.apache_kafka import COLLECTOR_OPTIONS, START_TIMEOUT_S
from tests.peers.java_tool import STORAGE_TOOL, java_command, run_tool
from tests.peers.kafka_jars import install

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CONTROLLER_ID: Final = 100
# Four of them share the machine with all clients.
_JVM_OPTIONS: Final = ("-Xmx512M", "-Xms256M", *COLLECTOR_OPTIONS)


class ApacheNode(RunningBroker):
    """A broker of Apache Kafka, or its controller: a process that `properties` describe."""

    def __init__(self, directory: Path, place: Place, port: int, node_id: int, properties: Mapping[str, str]) -> None:
        super().__init__(directory, node_id=node_id)
        self.host, self.port = place.host, port
        self.log_path = directory / "server.log"
        self._enter = place.enter
        self._properties = {**properties, "node.id": str(node_id), "log.dirs": str(directory / "data")}

    def format(self, cluster_id: str) -> None:
        """Raises `NotAnswering`."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
        done = run_tool(STORAGE_TOOL, "format", "--cluster-id", cluster_id, "--config", str(self._configuration))
        if done.returncode != 0:
            raise NotAnswering(f"the storage of {self.node_id} could not be formatted: {done.stdout}{done.stderr}")

    @property
    def _configuration(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def command_line(self) -> list[str]:
        command = java_command("kafka.Kafka", str(self._configuration), jvm_options=_JVM_OPTIONS)
        return [*self._enter, *command]

    def _spawn(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[str]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, text=True, pass_fds=pass_fds
            )

    def wait_until_ready(self, within_s: float = READY_WITHIN_S, check: Callable[[], None] = lambda: None) -> None:
        assert self._process is not None, "it is not running"
        began_s = time.monotonic()
        while True:
            check()
            try:
                wait_until_answering(self.host, self.port, self._process, timeout_s=1.0)  # type: ignore[arg-type]
                return
            except NotAnswering:
                if self._process.poll() is not None or time.monotonic() - began_s > START_TIMEOUT_S:
                    self.kill()
                    lines = self.log_path.read_text(errors="replace").splitlines()
                    raise BrokerDidNotStart(f"Apache Kafka's node {self.node_id}", lines) from None


class ApacheCluster(RunningCluster):
    """As a `RunningCluster` with places; raises `KafkaUnavailable` where Apache Kafka cannot be had.

    `properties` are for the brokers and the controller.
    """

    def __init__(
        self,
        directory: Path,
        places: Sequence[Place],
        controller_place: Place,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        install()
        super().__init__(
            len(places),
            directory,
            has_zookeeper=True,
            zookeeper_port=CONTROLLER_PORT,
            places=places,
            zookeeper_place=controller_place,
        )
        self._node_properties = {
            **properties,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller_place.host}:{CONTROLLER_PORT}",
        }
        of_controller = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{controller_place.host}:{CONTROLLER_PORT}",
            "auto.leader.rebalance.enable": "false",
        }
        controller = ApacheNode(
            self.data_dir / "controller",
            controller_place,
            CONTROLLER_PORT,
            CONTROLLER_ID,
            {**self._node_properties, **of_controller},
        )
        # It starts with a letter: the tool takes an argument with a leading "-" for an option.
        self._cluster_id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        controller.format(self._cluster_id)
        self.tree = controller  # type: ignore[assignment]  # what is used of it is alike

    @property
    def zookeeper(self) -> RunningZooKeeper:
        return self.tree  # type: ignore[return-value]

    def _new_broker(self, node_id: int) -> RunningBroker:
        place = self._places[node_id - 1]
        properties = {
            **self._node_properties,
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{place.host}:{BROKER_PORT}",
            "offsets.topic.replication.factor": str(len(self._places)),
        }
        broker = ApacheNode(self.data_dir / f"broker-{node_id}", place, BROKER_PORT, node_id, properties)
        broker.format(self._cluster_id)
        return broker
