"""Three brokers of Apache Kafka, each a KRaft controller too: what its quick start makes of three small machines."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.answering import NotAnswering, wait_until_serving
from tests.peers.apache_kafka import COLLECTOR_OPTIONS
from tests.peers.free_ports import find_free_ports
from tests.peers.java_tool import BROKER, STORAGE_TOOL, java_command, run_tool
from tests.peers.kafka_jars import install

from bench.cluster.peer import BROKERS, END_TIMEOUT_S, HOST, SETTINGS
from bench.peers.names import APACHE_KAFKA
from bench.wire import BrokerRefused, Wire

START_TIMEOUT_S: Final = 240
# Of more brokers, the first three.
CONTROLLERS: Final = 3

# The heap of kafka-server-start.sh is 1 GB for each broker; half of it is enough here, and flatters the peer's memory,
# not Ottla's.
JVM_OPTIONS: Final = ("-Xmx512M", "-Xms256M", *COLLECTOR_OPTIONS)
PROPERTIES: Final = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


class KafkaCluster:
    name = APACHE_KAFKA

    def __init__(self, home: Path, brokers: int) -> None:
        install()
        self._home = home
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = find_free_ports(brokers + CONTROLLERS)
        self._ports = dict(enumerate(ports[:brokers], start=1))
        controllers = dict(enumerate(ports[brokers:], start=1))
        # The storage tool takes an argument that begins with "-" for an option.
        cluster_id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        for node_id, port in self._ports.items():
            configuration = self._node_home(node_id) / "server.properties"
            configuration.parent.mkdir()
            listeners = [f"PLAINTEXT://{HOST}:{port}"]
            if node_id in controllers:
                listeners.append(f"CONTROLLER://{HOST}:{controllers[node_id]}")
            properties = PROPERTIES | {
                "process.roles": "broker,controller" if node_id in controllers else "broker",
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
                "controller.quorum.voters": ",".join(f"{id}@{HOST}:{each}" for id, each in controllers.items()),
                "log.dirs": str(self.data_dir(node_id)),
                **SETTINGS,
            }
            configuration.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            done = run_tool(STORAGE_TOOL, "format", "--cluster-id", cluster_id, "--config", str(configuration))
            if done.returncode != 0:
                raise NotAnswering(f"Apache Kafka's storage could not be formatted: {done.stdout}{done.stderr}")

    @property
    def ports(self) -> Mapping[int, int]:
        return {node_id: self._ports[node_id] for node_id in self._running()}

    def pids(self) -> Mapping[str, int]:
        return {f"broker {node_id}": process.pid for node_id, process in self._running().items()}

    def data_dir(self, node_id: int) -> Path:
        return self._node_home(node_id) / "data"

    def launch(self, node_id: int) -> None:
        home = self._node_home(node_id)
        command = java_command(BROKER, str(home / "server.properties"), jvm_options=JVM_OPTIONS)
        with (home / "server.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def terminate(self, node_id: int) -> None:
        self._processes[node_id].terminate()

    def wait_ended(self, node_id: int) -> None:
        try:
            self._processes[node_id].wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise NotAnswering(f"broker {node_id} has not stopped within {END_TIMEOUT_S:g} s") from None

    def pause(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """At the same time: a combined node that is stopped last waits in vain for a quorum to let it go."""
        running = list(self._running())
        for node_id in running:
            self.terminate(node_id)
        for node_id in running:
            self.wait_ended(node_id)

    def close(self) -> None:
        for process in self._running().values():
            process.kill()
            process.wait()

    def start(self) -> None:
        launched = [node_id for node_id in self._ports if node_id not in self._running()]
        for node_id in launched:
            self.launch(node_id)
        for node_id in launched:
            wait_until_serving(HOST, self._ports[node_id], self._processes[node_id], START_TIMEOUT_S)

    def controller(self) -> int:
        for port in self.ports.values():
            try:
                with Wire(port) as wire:
                    return wire.quorum_leader()
            except (OSError, BrokerRefused):
                continue  # it has just ended, or the quorum is choosing
        raise NotAnswering("no broker of Apache Kafka knows its controller")

    def _node_home(self, node_id: int) -> Path:
        return self._home / f"broker-{node_id}"

    def _running(self) -> dict[int, subprocess.Popen[bytes]]:
        return {node_id: process for node_id, process in self._processes.items() if process.poll() is None}


@contextmanager
def start_kafka_cluster(work_dir: Path, brokers: int = BROKERS) -> Iterator[KafkaCluster]:
    with tempfile.TemporaryDirectory(prefix="apache-kafka-", dir=work_dir, ignore_cleanup_errors=True) as home:
        cluster = KafkaCluster(Path(home), brokers)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
