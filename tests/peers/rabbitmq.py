"""One RabbitMQ broker of Debian's packages, for the benchmark: on loopback only, removed afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.debian_packages import find_version, unpack_packages
from tests.peers.free_ports import find_free_ports
from tests.peers.peer_process import PeerProcess, stop_process
from tests.peers.unavailable import PeerUnavailable

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60
SERVER: Final = "rabbitmq-server"
# The dependencies of the server's package.
ERLANG: Final = tuple(
    f"erlang-{part}"
    for part in (
        *("asn1", "base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools"),
        *("ssl", "syntax-tools", "tools", "xmerl"),
    )
)
AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"


def rabbitmq_version() -> str:
    """Debian's version, such as "3.10.8-1.1+deb12u1".  Raises PeerUnavailable with the reason."""
    return find_version(SERVER)


def install() -> Path:
    """The directory of the packages' files.  Raises PeerUnavailable with the reason."""
    name = f"rabbitmq-{rabbitmq_version().replace('+', '-').replace(':', '-')}"
    return keep_in_cache(name, lambda fresh: unpack_packages([SERVER, *ERLANG], fresh))


class RabbitMQ(PeerProcess):
    """A context manager.  After entering: `port`, `address` (host:port), `pid`; no plugins, defaults otherwise."""

    NAME = "RabbitMQ"

    port: int
    address: str
    _names: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """The server first: it unregisters from its name service."""
        super().stop()
        if self._names is not None:
            stop_process(self._names)

    def _install(self) -> None:
        self._root = install()

    def _start(self) -> None:
        self.port, names_port, distribution_port = find_free_ports(3)
        self.address = f"{HOST}:{self.port}"
        (self._home / "plugins").write_text("[].\n")
        (self._home / "rabbitmq.conf").write_text(f"listeners.tcp.local = {self.address}\n")
        erlang = self._make_erlang()
        environment = self._environment(erlang, names_port, distribution_port)
        with self.log_path.open("wb") as log:
            # Its name service, which the server would otherwise leave running as a daemon on every address.
            names = [str(erlang / "bin" / "epmd"), "-address", HOST, "-port", str(names_port)]
            self._names = self._launch(names, environment, log.fileno())
            server = next((self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")) / "sbin" / "rabbitmq-server"
            self._process = self._launch([str(server)], environment, log.fileno())
        self._wait_until(self._is_answering, START_TIMEOUT_S)

    def _make_erlang(self) -> Path:
        """An Erlang directory with its own path: Debian's start script names /usr/lib/erlang."""
        original, own = self._root / "usr/lib/erlang", self._home / "erlang"
        (own / "bin").mkdir(parents=True)
        for part in original.iterdir():
            if part.name != "bin":
                (own / part.name).symlink_to(part)
        for tool in (original / "bin").iterdir():
            (own / "bin" / tool.name).symlink_to(tool.resolve())
        script = own / "bin" / "erl"
        text = script.read_text().replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={own}")
        script.unlink()
        script.write_text(text)
        script.chmod(0o755)
        return own

    def _environment(self, erlang: Path, names_port: int, distribution_port: int) -> dict[str, str]:
        home = str(self._home)
        return {
            "PATH": f"{erlang}/bin{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": home,
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": f"{home}/mnesia",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{home}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{home}/no-environment-file",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{home}/generated",
            "RABBITMQ_SCHEMA_DIR": f"{home}/schema",
            "RABBITMQ_FEATURE_FLAGS_FILE": f"{home}/feature_flags",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # Its start script then becomes the server itself, so that the started process is the server.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
        }

    def _launch(self, command: list[str], environment: dict[str, str], log: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as problem:
            raise PeerUnavailable(f"{command[0]} cannot be started: {problem}") from None

    def _is_answering(self) -> bool:
        """It opens with a method frame: Connection.Start."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(AMQP_HEADER)
            return connection.recv(1) == b"\x01"
