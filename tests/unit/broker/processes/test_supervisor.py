"""The supervisor's shell, with small programs in place of brokers."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.broker.processes import supervisor
from ottla.broker.processes.recorded import RUNNING_FILE, BrokerProcess, read_running, start_ticks_of, write_running
from ottla.broker.processes.supervisor import (
    LEFT_REPORT_AFTER_MS,
    LEFT_STOP_WITHIN_MS,
    BrokerDidNotStop,
    BrokerProcesses,
    stop_left,
)
from ottla.model.identifiers import NodeId
from ottla.runtime.clock import SystemClock
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.process_places import folder_of
from tests.unit.storage.logs import HandClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--processes needs Linux")

ONE = NodeId(1)
ENDS_WITHIN_S = 60

# It keeps the record that it finds when it may start.
READS_RECORD = "input(); open({folder!r} + '/seen.json', 'w').write(open({folder!r} + '/running.json').read())"
REPORTS_READY = """
import os, signal, socket
input()
address = os.environ["NOTIFY_SOCKET"].replace("@", chr(0), 1)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", address)
{then}
"""


def run(main: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(main, ENDS_WITHIN_S))


async def supervised(folder: Path, program: str, *, stops_when_ready: bool = False) -> tuple[int, list[str]]:
    """The exit status, and what was reported."""
    reports: list[str] = []
    command = (sys.executable, "-S", "-c", program)

    def on_ready() -> None:
        reports.append((folder / RUNNING_FILE).read_text())
        if stops_when_ready:
            processes.stop()

    processes = BrokerProcesses({ONE: command}, [], str(folder), PosixDisk(), SystemClock(), on_ready, "of it")
    with closing(processes):
        processes.start()
        return await processes.finished, reports


def test_broker_is_in_the_record_before_it_may_start(tmp_path: Path) -> None:
    async def main() -> None:
        assert await supervised(tmp_path, READS_RECORD.format(folder=str(tmp_path))) == (1, [])

    run(main())
    (seen,) = json.loads((tmp_path / "seen.json").read_text())["processes"]
    assert (seen["node_id"], seen["fingerprint"], seen["is_ready"]) == (ONE, "of it", False)


def test_broker_that_serves_is_recorded_as_ready(tmp_path: Path) -> None:
    async def main() -> None:
        status, reports = await supervised(tmp_path, REPORTS_READY.format(then="signal.pause()"), stops_when_ready=True)
        assert status == 0
        assert [json.loads(each)["processes"][0]["is_ready"] for each in reports] == [True]

    run(main())


def test_notice_of_another_user_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other_uid)

    async def main() -> None:
        # It was never ready, so its end is that of all.
        assert await supervised(tmp_path, REPORTS_READY.format(then="")) == (1, [])

    run(main())


def test_broker_that_cannot_be_watched_is_ended_and_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            children.append(self)

    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", Kept)
    monkeypatch.setattr(os, "pidfd_open", refuse)

    async def main() -> None:
        assert await supervised(tmp_path, "input(); raise AssertionError") == (1, [])

    run(main())
    assert [child.returncode for child in children] == [-9]
    assert not (tmp_path / RUNNING_FILE).exists()


def test_broker_whose_supervisor_is_gone_before_the_record_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(tmp_path / "data"), "--start-line"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=ENDS_WITHIN_S, check=False).returncode == 1
    assert not (tmp_path / "data").exists()


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the record of a former supervisor that ignores SIGTERM, and ends with its input."""
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
    command = (sys.executable, "-S", "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        folder = folder_of(str(tmp_path))
        PosixDisk().make_directory(folder)
        found = BrokerProcess(ONE, process.pid, start_ticks_of(process.pid) or 0, command)
        write_running(PosixDisk(), folder, [found])
        yield process
        process.kill()


def test_brokers_of_a_former_supervisor_have_one_time_in_which_to_stop(
    tmp_path: Path,
    stubborn: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (found,) = read_running(PosixDisk(), folder_of(str(tmp_path)))
    write_running(PosixDisk(), folder_of(str(tmp_path)), [found, found._replace(node_id=NodeId(2))])
    clock, waited = HandClock(), []

    def has_ended(descriptor: int, within_s: float) -> bool:
        """The first one ends just before the deadline, the second one does not."""
        clock.ms += round(within_s * 1_000)
        waited.append(descriptor)
        return clock.ms == LEFT_STOP_WITHIN_MS - LEFT_REPORT_AFTER_MS

    monkeypatch.setattr(supervisor, "has_ended", has_ended)
    with pytest.raises(BrokerDidNotStop, match=rf"broker 2, process {stubborn.pid}, does not stop"):
        stop_left(str(tmp_path), clock=clock)
    assert clock.ms == LEFT_STOP_WITHIN_MS
    assert len({*waited}) == 2
    reported = [record.ottla_facts for record in caplog.records]  # type: ignore[attr-defined]
    remaining_ms = [each["remaining_ms"] for each in reported if "remaining_ms" in each]
    assert remaining_ms == [*range(55_000, 5_000, -LEFT_REPORT_AFTER_MS)]
    assert stubborn.poll() is None


def test_broker_of_a_former_supervisor_is_stopped_unless_it_is_wanted(
    tmp_path: Path, stubborn: subprocess.Popen[bytes]
) -> None:
    (kept,) = stop_left(str(tmp_path), lambda process: process.node_id == ONE)
    assert kept.pid == stubborn.pid
    stubborn.kill()
    assert stop_left(str(tmp_path)) == []
