"""One Apache ActiveMQ (Classic) broker, its own distribution from Maven Central, for the benchmark; loopback only."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.peers import process_usage
from tests.peers.answering import NotAnswering
from tests.peers.cache import keep_in_cache
from tests.peers.free_ports import find_free_ports
from tests.peers.kafka_jars import KafkaUnavailable, find_java
from tests.peers.maven import copy_artifact
from tests.peers.unavailable import PeerUnavailable

VERSION: Final = "5.18.3"
HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30
CONFIGURATION: Final = Path(__file__).with_name("activemq.xml")
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
# The heap of its own start script, and what its libraries need of Java 17.
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


class ActiveMQ:
    """A context manager.  After entering: `port`, `address` (host:port) of its OpenWire listener, `pid`.

    Its distribution's configuration, without the web console and without listeners for other protocols.
    """

    port: int
    address: str

    def __init__(self, parent_dir: Path | None = None) -> None:
        self._parent_dir = parent_dir
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> ActiveMQ:
        distribution = install()
        scratch = tempfile.TemporaryDirectory(prefix="activemq-", dir=self._parent_dir, ignore_cleanup_errors=True)
        self._home = Path(self._cleanup.enter_context(scratch))
        self._cleanup.callback(self._stop)
        try:
            self._start(distribution)
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return process_usage.cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return process_usage.rss_bytes(self.pid)

    def _start(self, distribution: Path) -> None:
        (self.port,) = find_free_ports(1)
        self.address = f"{HOST}:{self.port}"
        (self._home / "activemq.xml").write_text(CONFIGURATION.read_text().replace("@ADDRESS@", self.address))
        places = {
            "activemq.home": distribution,
            "activemq.base": self._home,
            "activemq.conf": self._home,
            "activemq.data": self._home / "data",
            "log4j2.configurationFile": LOGGING,
            "peer.log.level": "WARN",
        }
        command = [find_java(), *JVM_OPTIONS, *(f"-D{name}={value}" for name, value in places.items())]
        command += [
            "-jar",
            str(distribution / "bin" / "activemq.jar"),
            "start",
            f"xbean:file:{self._home}/activemq.xml",
        ]
        with (self._home / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until_answering()

    def _wait_until_answering(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=5) as connection:
                if b"ActiveMQ" in connection.recv(64):  # the server greets with its wire format
                    return
            time.sleep(0.05)
        story = (self._home / "server.log").read_text(errors="replace")[-2000:]
        raise NotAnswering(f"ActiveMQ did not answer on {self.address}; its log ends:\n{story}")

    def _stop(self) -> None:
        process = getattr(self, "_process", None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
