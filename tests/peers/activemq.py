"""One Apache ActiveMQ (Classic) broker, its own distribution from Maven Central, for the benchmark; loopback only."""

from __future__ import annotations

import socket
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.free_ports import find_free_ports
from tests.peers.kafka_jars import KafkaUnavailable, find_java
from tests.peers.maven import copy_artifact
from tests.peers.peer_process import PeerProcess
from tests.peers.unavailable import PeerUnavailable

VERSION: Final = "5.18.3"
HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60
CONFIGURATION: Final = Path(__file__).with_name("activemq.xml")
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
# The heap of its start script, and the options that its libraries require on Java 17.
JVM_OPTIONS: Final = (
    "-Xms64M",
    "-Xmx1G",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.net", "java.security", "java.util", "java.util.concurrent")
    ),
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "-Djava.awt.headless=true",
)


def install() -> Path:
    """The distribution's directory.  Raises PeerUnavailable with the reason."""
    try:
        find_java()
    except KafkaUnavailable as reason:
        raise PeerUnavailable(str(reason).replace("Apache Kafka", "Apache ActiveMQ")) from None
    return keep_in_cache(f"activemq-{VERSION}", _bring) / f"apache-activemq-{VERSION}"


def _bring(fresh: Path) -> None:
    with tempfile.TemporaryDirectory(dir=fresh.parent) as scratch:
        copy_artifact(f"org.apache.activemq:apache-activemq:{VERSION}:tar.gz:bin", Path(scratch))
        with tarfile.open(next(Path(scratch).iterdir())) as archive:
            archive.extractall(fresh, filter="data")


class ActiveMQ(PeerProcess):
    """A context manager.  After entering: `port`, `address` (host:port) of its OpenWire listener, `pid`.

    Its distribution's configuration, without the web console and without listeners for other protocols.
    """

    NAME = "ActiveMQ"

    port: int
    address: str

    def _install(self) -> None:
        self._distribution = install()

    def _start(self) -> None:
        (self.port,) = find_free_ports(1)
        self.address = f"{HOST}:{self.port}"
        (self._home / "activemq.xml").write_text(CONFIGURATION.read_text().replace("@ADDRESS@", self.address))
        places = {
            "activemq.home": self._distribution,
            "activemq.base": self._home,
            "activemq.conf": self._home,
            "activemq.data": self._home / "data",
            "log4j2.configurationFile": LOGGING,
            "peer.log.level": "WARN",
        }
        command = [find_java(), *JVM_OPTIONS, *(f"-D{name}={value}" for name, value in places.items())]
        command += [
            "-jar",
            str(self._distribution / "bin" / "activemq.jar"),
            "start",
            f"xbean:file:{self._home}/activemq.xml",
        ]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until(self._is_answering, START_TIMEOUT_S)

    def _is_answering(self) -> bool:
        """The server greets with its wire format."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            return b"ActiveMQ" in connection.recv(64)
