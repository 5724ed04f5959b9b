"""`ottla testing`: a broker for the tests of any language, as a program that a script or a test runner starts."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import assert_produced, produce
from tests.eventually import eventually

ENDS_WITHIN_S = 240
TESTING = (sys.executable, "-m", "ottla", "testing")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for what is temporary: it is empty when everything is removed."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program and the line that it wrote when it was ready."""
    command = [*TESTING, "serve", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield program, program.stdout.readline().strip()
        finally:
            program.kill()


def run(arguments: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    command = [*TESTING, "run", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_writes_its_address_when_it_is_ready_and_leaves_nothing(temporary: Path, number: signal.Signals) -> None:
    address = f"127.0.0.1:{free_port()}"
    with serving("--listen", address, "--topic", "orders:3", "--topic", "payments") as (program, line):
        assert line == address
        with Cluster(line) as cluster:
            counts = {topic.name: len(topic.partitions) for topic in Admin(cluster).list_topics()}
        assert counts == {"orders": 3, "payments": 1}
        produce("payments", ["paid"], bootstrap=line)
        assert_produced("payments", ["paid"], bootstrap=line)
        assert list(temporary.iterdir())
        program.send_signal(number)
        assert program.wait(ENDS_WITHIN_S) == 0
        assert program.stdout is not None
        assert program.stdout.read() == "", "one line is all that a script gets"
    assert not list(temporary.iterdir())


def test_server_ends_with_the_program_that_has_its_input(temporary: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--until-eof") as (program, _):
        assert program.stdin is not None
        program.stdin.write("not the end\n")
        program.stdin.flush()
        program.stdin.close()
        assert program.wait(ENDS_WITHIN_S) == 0
    assert not list(temporary.iterdir())


def test_server_that_is_killed_leaves_nothing(temporary: Path) -> None:
    with serving("--listen", "127.0.0.1:0") as (program, line):
        program.kill()
    host, port = line.split(":")

    def answers() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError:
            return False
        return True

    eventually(lambda: answers() or list(temporary.iterdir()), lambda there: not there)


def test_port_that_is_taken_is_reported(temporary: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*TESTING, "serve", "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: the broker did not start: cannot listen on {address}")
    assert "\nhint: " in done.stderr
    assert not list(temporary.iterdir())


def test_command_runs_beside_a_broker_and_its_exit_status_is_returned(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:1")  # the developer's broker
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(tmp_path / "of-another-cluster.properties"))
    program = """
import os, subprocess, sys
from ottla.testing import assert_produced
subprocess.run([sys.executable, "-m", "ottla", "produce", "orders"], input=b"paid\\n", check=True)
assert_produced("orders", ["paid"], bootstrap=os.environ["KAFKA_BOOTSTRAP_SERVERS"])
print("tested")
sys.exit(7)
"""
    done = run(["--topic", "orders", "--", sys.executable, "-c", program], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "tested\n", "")
    assert not list(temporary.iterdir())


def test_command_that_a_signal_ended_has_the_exit_status_of_a_shell(tmp_path: Path) -> None:
    assert run(["--", "sh", "-c", "kill -9 $$"], tmp_path).returncode == 128 + signal.SIGKILL


def test_command_is_ended_with_its_broker(temporary: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = [*TESTING, "run", "--", "sh", "-c", f"touch {started}; exec sleep 3600"]
    with subprocess.Popen(command) as program:
        eventually(started.exists)
        program.terminate()
        assert program.wait(ENDS_WITHIN_S) == 130
    assert not list(temporary.iterdir())


def test_missing_command_is_an_error(temporary: Path, tmp_path: Path) -> None:
    done = run(["no-such-command"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no-such-command cannot be run: ")
    assert not list(temporary.iterdir())
