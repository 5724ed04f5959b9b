"""One Apache Kafka broker (KRaft, controller and broker in one process) for tests and the benchmark.

python -m tests.peers.apache_kafka install     downloads it into the cache
python -m tests.peers.apache_kafka run         starts one, prints its address, stops it at Ctrl-C
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from tests.peers.answering import NotAnswering, wait_until_answering, wait_until_serving
from tests.peers.class_archives import make_archive, options_of
from tests.peers.free_ports import find_free_ports
from tests.peers.java_tool import BROKER, STORAGE_TOOL, TOPIC_COMMAND, classes_of, java_command, run_tool
from tests.peers.kafka_jars import POM, KafkaUnavailable, classpath, find_java, install, kafka_version
from tests.peers.peer_process import PeerProcess

__all__ = ["ApacheKafka", "KafkaUnavailable", "install", "kafka_version", "run_tool"]

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 240
START_ATTEMPTS: Final = 3

# The collector's options of kafka-run-class.sh.
COLLECTOR_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# As delivered, for benchmarks: with the heap of kafka-server-start.sh.
SERVER_OPTIONS: Final = ("-Xmx1G", "-Xms1G", *COLLECTOR_OPTIONS)
# A broker of a test lives for a few minutes and sees few requests: the optimising compiler does not pay off.
QUICK_OPTIONS: Final = (
    "-Xmx1G",
    "-Xms128M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)

# The settings that one node requires; all others keep Apache Kafka's defaults.
SINGLE_NODE: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka(PeerProcess):
    """A context manager: a fresh broker, which is removed afterwards.

    `properties` are added to server.properties.  `parent_dir` is the parent of its directory (the system's place for
    temporary files otherwise).  `listeners` are further ones by name, with their protocols, `format_arguments` are of
    `kafka-storage format` and `jvm_options` of the broker.  After entering: `bootstrap` ("127.0.0.1:port"), `port`,
    `addresses` (of the further listeners), `pid`, `data_dir` (the partitions' directories), `log_path` (its own log),
    and `startup_s`, from starting its process to its first ApiVersions answer.  Raises KafkaUnavailable where it is
    unavailable, NotAnswering when it does not come up.
    """

    NAME = "Apache Kafka"
    JVM_OPTIONS: ClassVar[Sequence[str]] = QUICK_OPTIONS
    # Whether its JVM maps classes from an archive, where there is one.
    MAPS_CLASSES: ClassVar[bool] = True

    bootstrap: str
    port: int
    startup_s: float

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        parent_dir: Path | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
    ) -> None:
        super().__init__(parent_dir)
        self.addresses: dict[str, str] = {}
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._format_arguments = format_arguments
        self._jvm_options = jvm_options

    @property
    def data_dir(self) -> Path:
        return self._home / "data"

    def start(self) -> None:
        """Start again after `stop()`, with the same data and configuration."""
        self._launch(self._home / "server.properties")

    def _install(self) -> None:
        install()

    def _start(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self.port, controller_port, *ports = find_free_ports(2 + len(self._listeners))
            self.bootstrap = f"{HOST}:{self.port}"
            self.addresses = {name: f"{HOST}:{port}" for name, port in zip(self._listeners, ports, strict=True)}
            configuration = self._write_configuration(controller_port)
            if attempt == 1:
                self._format_storage(configuration)
            try:
                self._launch(configuration)
                return
            except NotAnswering as problem:
                self.stop()
                story = self.log_path.read_text(errors="replace")
                # Another process may have taken a port between the choice of it and the broker's bind.
                if "Address already in use" not in story or attempt == START_ATTEMPTS:
                    raise NotAnswering(f"{problem}; its log ends:\n{story[-2000:]}") from None

    def _write_configuration(self, controller_port: int) -> Path:
        node_id = self._properties.get("node.id", SINGLE_NODE["node.id"])
        properties = SINGLE_NODE | {
            "listeners": ",".join(
                [
                    f"PLAINTEXT://{self.bootstrap}",
                    f"CONTROLLER://{HOST}:{controller_port}",
                    *(f"{name}://{address}" for name, address in self.addresses.items()),
                ]
            ),
            "listener.security.protocol.map": ",".join(
                [
                    SINGLE_NODE["listener.security.protocol.map"],
                    *(f"{name}:{protocol}" for name, protocol in self._listeners.items()),
                ]
            ),
            "controller.quorum.voters": f"{node_id}@{HOST}:{controller_port}",
            "log.dirs": str(self.data_dir),
        }
        path = self._home / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in (properties | self._properties).items()))
        return path

    def _format_storage(self, configuration: Path) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The tool takes an argument that starts with "-" for an option, and such an id is possible.
        cluster_id = "A" + cluster_id[1:]
        arguments = ("--cluster-id", cluster_id, "--config", str(configuration), *self._format_arguments)
        done = run_tool(STORAGE_TOOL, "format", *arguments)
        if done.returncode != 0:
            raise NotAnswering(f"Apache Kafka's storage could not be formatted: {done.stdout}{done.stderr}")

    def _launch(self, configuration: Path) -> None:
        archive = options_of(classes_of(BROKER)) if self.MAPS_CLASSES else ()
        command = java_command(
            BROKER, str(configuration), jvm_options=(*self.JVM_OPTIONS, *archive, *self._jvm_options)
        )
        log: BinaryIO
        with self.log_path.open("ab") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.startup_s = wait_until_answering(HOST, self.port, self._process, START_TIMEOUT_S) - started
        wait_until_serving(HOST, self.port, self._process, START_TIMEOUT_S)


class ArchivingKafka(ApacheKafka):
    """With a JVM that may archive the classes that it has loaded."""

    MAPS_CLASSES = False


def archive_broker() -> None:
    """Archive the broker's classes, for the storage tool, too.  Raises KafkaUnavailable."""

    def run(options: Sequence[str]) -> str:
        with ArchivingKafka(jvm_options=options) as kafka:
            run_tool(TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "archived")
        return classpath(POM)

    try:
        make_archive(classes_of(BROKER), Path(find_java()), run)
    except NotAnswering as reason:
        raise KafkaUnavailable(f"its classes are not archived: {reason}") from None


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["install"]:
                sys.stdout.write(f"Apache Kafka {kafka_version()}: {install()}\n")
                return 0
            case ["run"]:
                with ApacheKafka() as kafka:
                    sys.stdout.write(f"Apache Kafka {kafka_version()} on {kafka.bootstrap}, log {kafka.log_path}\n")
                    sys.stdout.flush()
                    with contextlib.suppress(KeyboardInterrupt):
                        signal.pause()
                return 0
    except KafkaUnavailable as reason:
        sys.stderr.write(f"Apache Kafka is not available: {reason}\n")
        return 1
    sys.stderr.write("usage: python -m tests.peers.apache_kafka install|run\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
