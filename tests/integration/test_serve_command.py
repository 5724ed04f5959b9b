"""`ottla serve` as an operator starts, uses and stops it."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from ottla.cli.log.stopped_directory import StoppedDirectory, make_data_directory
from ottla.coordination.features import TRANSACTION_VERSION, FeatureRegistry
from ottla.coordination.tree import Tree
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory

READY_WITHIN_S: Final = 120.0
_EVENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.-]+( .*)?")


class Served:
    """A broker started by the command line; `lines` holds its standard error as far as it was read."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        self.lines: list[str] = []
        self._pending = b""

    def wait_for(self, event: str) -> str:
        """The line of an event."""
        deadline_s = time.monotonic() + READY_WITHIN_S
        while True:
            for line in self.lines:
                if f" {event}" in line:
                    return line
            assert self._read_more(deadline_s), f"no {event}:\n" + "\n".join(self.lines)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for the end; returns the exit status."""
        out, err = self.process.communicate(timeout=READY_WITHIN_S)
        assert out == b"", "standard output is for data"
        self.lines += (self._pending + err).decode().splitlines()
        return self.process.returncode

    @property
    def port(self) -> int:
        found = re.search(r" port=(\d+)", self.wait_for("broker.ready"))
        assert found is not None
        return int(found[1])

    def _read_more(self, deadline_s: float) -> bool:
        assert self.process.stderr is not None
        fd = self.process.stderr.fileno()
        if not select.select([fd], [], [], max(deadline_s - time.monotonic(), 0))[0]:
            return False
        data = os.read(fd, 65536)
        *whole, self._pending = (self._pending + data).split(b"\n")
        self.lines += [line.decode() for line in whole]
        return bool(data)


@pytest.fixture
def started() -> Iterator[list[Served]]:
    """Brokers to end with the test."""
    found: list[Served] = []
    yield found
    for served in found:
        if served.process.poll() is None:
            served.process.kill()
            served.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_broker_starts_on_a_free_port_and_stops_cleanly(
    tmp_path: Path, started: list[Served], number: signal.Signals
) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    started.append(served)
    socket.create_connection(("127.0.0.1", served.port), timeout=5).close()
    assert served.stop(number) == 0
    assert [line for line in served.lines if _EVENT.fullmatch(line) is None] == []
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_data_directory_is_closed_to_others(tmp_path: Path, started: list[Served]) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    started.append(served)
    served.wait_for("broker.ready")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]}
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_broker_listens_on_loopback_only(tmp_path: Path, started: list[Served]) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "localhost:0")
    started.append(served)
    served.wait_for("broker.ready")
    addresses = _listening_addresses(served.process.pid)
    assert addresses
    assert addresses <= {"0100007F", "0" * 24 + "01000000"}


def test_open_address_is_refused_with_the_flag_that_allows_it(tmp_path: Path, started: list[Served]) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "0.0.0.0:0")
    started.append(served)
    assert served.end() == 1
    error, hint = served.lines
    assert error.startswith("error: refused to listen on 0.0.0.0")
    assert "--insecure-listen" in hint
    assert not (tmp_path / "data").exists(), "nothing is made before the options are right"


def test_open_address_is_accepted_with_the_flag(tmp_path: Path, started: list[Served]) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "0.0.0.0:0", "--insecure-listen")
    started.append(served)
    socket.create_connection(("127.0.0.1", served.port), timeout=5).close()
    assert served.stop() == 0


def test_file_of_apache_kafka_starts_the_broker_which_lists_ignored_settings(
    tmp_path: Path, started: list[Served]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\n"
        "node.id=7\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        "num.network.threads=3\n"
        f"log.dirs={tmp_path / 'data'}\n"
        "num.partitons=3\n"
    )
    served = Served(str(config))
    started.append(served)
    assert " node_id=7 " in served.wait_for("broker.ready")
    assert "INFO setting.ignored" in served.wait_for("setting.ignored name=num.network.threads")
    assert 'origin="server.properties line 8" nearest=num.partitions' in served.wait_for("setting.unknown")
    assert (tmp_path / "data" / "meta.properties").exists()
    assert served.stop() == 0


def test_value_that_cannot_be_used_stops_the_start(tmp_path: Path, started: list[Served]) -> None:
    served = Served(
        "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", environment={"OTTLA_LOG_SEGMENT_BYTES": "1GB"}
    )
    started.append(served)
    assert served.end() == 1
    assert served.lines == [
        "error: log.segment.bytes: '1GB' is not a whole number (environment OTTLA_LOG_SEGMENT_BYTES)",
        "hint: log.segment.bytes takes a whole number from 14 to 2147483647; the default is 1073741824",
    ]


def test_second_broker_is_kept_out_of_the_data_directory(tmp_path: Path, started: list[Served]) -> None:
    for _ in range(2):
        started.append(Served("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"))
        if len(started) == 1:
            started[0].wait_for("broker.ready")
    assert started[1].end() == 1
    assert started[1].lines[-2].startswith("error: ")
    assert started[1].lines[-1].startswith("hint: ")


def test_taken_port_is_one_clear_line(tmp_path: Path, started: list[Served]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other_port = other.getsockname()[1]
        served = Served("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{other_port}")
        started.append(served)
        assert served.end() == 1
    assert served.lines[-2] == f"error: cannot listen on 127.0.0.1:{other_port}: Address already in use"
    assert served.lines[-1] == (
        f"hint: what listens at 127.0.0.1:{other_port} does not answer as a Kafka broker does (without TLS and "
        "logins): choose another port (--listen, --admin-listen), or port 0 for a free one"
    )


@pytest.mark.parametrize("partitions", [200, 35])
def test_start_is_refused_when_too_few_files_may_be_open(tmp_path: Path, partitions: int) -> None:
    """With 200 logs the opening itself fails; with 35 all open, and hardly a client could connect."""
    make_data_directory(str(tmp_path), 0)
    with StoppedDirectory(str(tmp_path)):
        pass  # which creates the tree
    logs = LogDirectory.open(PosixDisk(), str(tmp_path), clock=SystemClock())
    run_inline(logs.create([(TopicPartition("orders", number), UUID(int=9)) for number in range(partitions)]))
    logs.close()
    command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    limited = ["sh", "-c", 'ulimit -n 64; exec "$0" "$@"', *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=READY_WITHIN_S, check=False)
    assert done.returncode == 1
    *events, error, hint = done.stderr.splitlines()
    assert not [line for line in events if "log.refused" in line or "broker.ready" in line]
    assert f"64 files may be open; {partitions} segments of {partitions} partitions are there" in error
    assert hint.startswith("hint: raise the hard limit (ulimit -Hn")


def serve_once(data_dir: Path | str) -> list[str]:
    """The error output of a refused start."""
    command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN_S, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()


def test_start_is_refused_where_a_later_program_has_finalized_a_feature(tmp_path: Path) -> None:
    make_data_directory(str(tmp_path), 0)

    async def finalize(tree: Tree) -> None:
        await FeatureRegistry(tree).finalize({TRANSACTION_VERSION: 99})

    with StoppedDirectory(str(tmp_path)) as directory:
        directory.with_tree(finalize)
    *_, error, hint = serve_once(tmp_path)
    assert error.startswith("error: the cluster has finalized transaction.version at level 99, this program supports")
    assert hint.startswith("hint: start the version of Ottla that the other brokers run")


def test_start_in_a_directory_of_others_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").write_text("mine")
    error, hint = serve_once(tmp_path)
    assert error == f"error: {tmp_path} is not a data directory, and it is not empty: it holds notes.txt"
    assert hint == "hint: choose another --data-dir: a new one, or an empty one"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_start_in_a_directory_of_apache_kafka_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=a\n")
    error, hint = serve_once(tmp_path)
    assert "was made by Apache Kafka" in error
    assert "ottla log import" in hint
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("name", ["file", "file/below", "missing/below"])
def test_start_has_a_hint_when_the_directory_cannot_be_created(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    error, hint = serve_once(tmp_path / name)
    assert error.startswith(f"error: {tmp_path / name} cannot be a data directory: ")
    if name == "missing/below":
        assert hint.startswith(f"hint: {tmp_path}/missing does not exist: make it first (mkdir -p {tmp_path}/missing)")
    else:
        assert hint.startswith("hint: choose a --data-dir that this user may write to")


def test_empty_directory_is_closed_to_others_when_it_is_taken(tmp_path: Path, started: list[Served]) -> None:
    tmp_path.chmod(0o755)
    served = Served("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    started.append(served)
    served.wait_for("broker.ready")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_hostile_client_id_stays_inside_its_line(tmp_path: Path, started: list[Served]) -> None:
    served = Served("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--log-level", "debug")
    started.append(served)
    client_id = b"evil\n2026-01-01T00:00:00.000Z INFO broker.stopped\x1b[2J"
    # Metadata v1 (header v1) whose count of topics is larger than what follows.
    body = b"\x00\x03\x00\x01" + b"\x00\x00\x00\x07" + len(client_id).to_bytes(2, "big") + client_id + b"\x7f" * 4
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as peer:
        peer.sendall(len(body).to_bytes(4, "big") + body)
        assert peer.recv(1) == b"", "the connection is closed"
    refused = served.wait_for("request.refused")
    assert 'client_id="evil\\n2026-01-01T00:00:00.000Z INFO broker.stopped\\x1b[2J"' in refused
    assert served.stop() == 0
    assert [line for line in served.lines if _EVENT.fullmatch(line) is None] == []


def _listening_addresses(pid: int) -> set[str]:
    """Hexadecimal local addresses of the process's listening TCP sockets."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(fd)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[9] in inodes and columns[3] == "0A":
                found.add(columns[1].split(":")[0])
    return found


def test_service_manager_is_notified_of_readiness_and_its_journal_gets_priorities(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, open(tmp_path / "journal", "w+b") as journal:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(READY_WITHIN_S)
        found = os.fstat(journal.fileno())
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0"],
            stderr=journal,
            # The tests may run below `nohup`, which ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            env={
                **os.environ,
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}",
            },
        )
        try:
            assert manager.recv(100) == b"READY=1"
            # As when its terminal is closed: it shuts down cleanly.
            process.send_signal(signal.SIGHUP)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(READY_WITHIN_S) == 0
        finally:
            process.kill()
            process.wait()
        journal.seek(0)
        lines = journal.read().decode().splitlines()
    assert any(line.startswith("<6>INFO broker.ready ") for line in lines), lines
    assert all(re.match(r"<[3467]>", line) for line in lines), lines
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not show which signals are ignored")
def test_signal_of_a_closed_terminal_stays_ignored_where_it_was(tmp_path: Path) -> None:
    serve = f"exec {sys.executable} -m ottla serve --data-dir {tmp_path}/data --listen 127.0.0.1:0"
    with subprocess.Popen(["sh", "-c", f"trap '' HUP; {serve}"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "broker.ready" not in process.stderr.readline():
            assert process.poll() is None
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
        assert process.wait(READY_WITHIN_S) == 0
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) & 1 << (signal.SIGHUP - 1)
