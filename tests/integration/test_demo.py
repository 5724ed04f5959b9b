"""The demo as its user runs it: to the end, with a record lost on purpose, and interrupted at many points."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import Replay
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

pytest.importorskip("rich")
deltalake = pytest.importorskip("deltalake")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are looked for in Linux's /proc"),
]

EVENTS: Final = 2_000
# With these events and the demo's default seed.
MALFORMED: Final = 3
ENDED_WITHIN_S: Final = 60.0
# Between two presses of Ctrl-C.
HASTE_S: Final = 0.3
CTRL_C: Final = b"\x03"


class RunOfDemo:
    """`ottla demo` in its own session, with a directory for temporary files that no other process uses.

    Everything that it starts, at any depth, inherits a mark in its environment.
    """

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.output = b""
        self.mark = f"OTTLA_TEST_MARK={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.environment = {**os.environ, "TMPDIR": str(temporary), "COLUMNS": "100", "LINES": "40", name: value}

    def start(self, *arguments: str) -> None:
        self.out, write_end = os.pipe()
        self.process = subprocess.Popen(
            self._command(arguments),
            stdout=write_end,
            stderr=subprocess.STDOUT,
            env=self.environment,
            start_new_session=True,
        )
        os.close(write_end)

    def start_at_terminal(self, *arguments: str) -> None:
        pid, self.out = pty.fork()
        if pid == 0:
            os.execve(sys.executable, self._command(arguments), self.environment | {"TERM": "xterm-256color"})
        self.pid = pid

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "ottla", "demo", "--events", str(EVENTS), *arguments]

    def wait_until_importing(self) -> None:
        """Until the program's own modules are being imported: before that, Python's start decides what Ctrl-C does."""
        maps = Path(f"/proc/{self.process.pid}/maps")
        eventually(lambda: "deltalake" in maps.read_text() or self.process.poll() is not None)

    def read_until(self, text: str) -> None:
        while text.encode() not in self.output:
            assert self._read(), f"the demo ended without {text!r}:\n{self.output.decode()}"

    def read_all(self) -> str:
        while self._read():
            pass
        return self.output.decode()

    def _read(self) -> bool:
        try:
            data = os.read(self.out, 1 << 16)
        except OSError:  # the terminal's other side is closed
            return False
        self.output += data
        return bool(data)

    def close(self) -> None:
        os.close(self.out)
        if hasattr(self, "process"):
            self.process.wait()

    def processes(self) -> dict[int, str]:
        """The demo's processes that still run, by id; zombies are not counted."""
        found = {}
        for directory in Path("/proc").iterdir():
            try:
                if self.mark.encode() in (directory / "environ").read_bytes().split(b"\0"):
                    found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


@pytest.fixture
def demo() -> Iterator[RunOfDemo]:
    temporary = Path(tempfile.mkdtemp(prefix="od-"))
    run = RunOfDemo(temporary)
    yield run
    for pid in run.processes():
        os.kill(pid, signal.SIGKILL)
    run.close()
    shutil.rmtree(temporary, ignore_errors=True)


def _table(keep: Path, name: str) -> Any:
    return deltalake.DeltaTable(str(keep / "lake" / name)).to_pyarrow_table()


def _assert_nothing_is_left(demo: RunOfDemo) -> None:
    assert demo.processes() == {}
    assert list(demo.temporary.iterdir()) == []


def test_every_event_is_counted_by_every_tier_and_all_can_be_looked_at_afterwards(
    demo: RunOfDemo, tmp_path: Path
) -> None:
    keep = tmp_path / "kept here"
    demo.start("--keep", str(keep))
    text = demo.read_all()
    assert demo.process.wait() == 0, text
    assert f"{EVENTS:,} sent = acknowledged = stored = loaded, each hour, each once" in text
    assert f"{EVENTS:,} sent = {EVENTS - MALFORMED:,} well-formed + {MALFORMED} dead letters" in text
    assert "\x1b" not in text, "no terminal, no escape sequences"
    shown, _, _ = text.partition("next steps:")  # those have paths
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(rf"^ *all( +{EVENTS:,}){{4}} *$", text, re.MULTILINE), text
    assert text.count("24 of 24 h") == 4
    assert f"{MALFORMED} events are dead letters; {MALFORMED} can be put back" in text
    assert "Traceback" not in text
    _assert_nothing_is_left(demo)

    assert _table(keep, "events").num_rows == EVENTS
    letters = _table(keep, "dead-letters")
    assert letters.num_rows == MALFORMED
    assert set(letters.column("error_message").to_pylist()) == {"the value is not JSON"}
    assert min(_table(keep, "sessions").column("views").to_pylist()) > 0
    assert set(_table(keep, "top-pages").column("rank").to_pylist()) == {1, 2, 3}
    assert set(_table(keep, "audit").column("tier").to_pylist()) == {"producer", "broker", "lake", "table"}
    with RunningBroker(keep / "broker") as broker, Cluster(broker.bootstrap) as cluster:
        names = {topic.name for topic in Admin(cluster).list_topics() if not topic.is_internal}
        assert names >= {"page-views", "clicks", "searches", "service-metrics", "ottla-audit", "ottla-audit-results"}
        # The letters are where the table says, and go back once.
        topics = [name for name in names if name.endswith(".dead-letter")]
        assert sum(Replay(cluster, topic).run().put_back for topic in topics) == MALFORMED
        assert sum(Replay(cluster, topic).run().put_back for topic in topics) == 0


def test_a_record_that_the_lake_lost_is_named_by_topic_and_hour(demo: RunOfDemo) -> None:
    demo.start("--drop-one")
    text = demo.read_all()
    assert demo.process.wait() == 1, text
    found = re.search(
        r"^error: the counts differ: topic ([\w-]+), hour ([\d-]{10}T\d\d:00Z): "
        r"producer (\d+), broker (\d+), lake (\d+), table (\d+)$",
        text,
        re.MULTILINE,
    )
    assert found is not None, text
    topic, hour, *counts = found.groups()
    produced, stored, loaded, kept = map(int, counts)
    assert produced == stored == loaded == kept + 1
    assert re.search(rf"^ *{hour} +{topic} +{produced} +{stored} +{loaded} +{kept} *$", text, re.MULTILINE), text
    assert "23 of 24 h" in text
    assert "checked " not in text
    assert "next steps" not in text
    _assert_nothing_is_left(demo)


@pytest.mark.parametrize(
    ("moment", "wait_s"),
    [
        ("", 0.1),  # while modules are imported and the broker starts
        ("the day ", 0.5),  # while records are produced
        ("jobs ", 2.0),  # while Java starts
        ("Spark loads", 2.0),  # while Python workers start
        ("Spark finds", 2.0),  # while a stream runs
    ],
)
def test_interrupted_demo_leaves_no_processes_and_no_files(demo: RunOfDemo, moment: str, wait_s: float) -> None:
    demo.start()
    demo.wait_until_importing()
    demo.read_until(moment)
    time.sleep(wait_s)  # the moment itself is what is tested
    # As a terminal does it: the whole foreground group gets the signal, twice because people do not wait.
    os.killpg(demo.process.pid, signal.SIGINT)
    time.sleep(HASTE_S)
    if demo.process.poll() is None:
        os.killpg(demo.process.pid, signal.SIGINT)
    began_s = time.monotonic()
    text = demo.read_all()
    # While modules are imported the signal itself ends the process; a shell calls that 130, too.
    assert demo.process.wait() in ({130, -signal.SIGINT} if not moment else {130}), text
    assert time.monotonic() - began_s < ENDED_WITHIN_S
    assert "Traceback" not in text
    _assert_nothing_is_left(demo)


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGTERM, "jobs "), (signal.SIGHUP, "broker ")])
def test_demo_stopped_by_another_signal_cleans_up_as_well(demo: RunOfDemo, number: signal.Signals, moment: str) -> None:
    demo.start()
    demo.read_until(moment)
    demo.process.send_signal(number)
    demo.read_all()
    assert demo.process.wait() == 130
    _assert_nothing_is_left(demo)


def test_ctrl_c_at_a_terminal_ends_the_demo_and_leaves_the_cursor_visible(demo: RunOfDemo) -> None:
    demo.start_at_terminal()
    demo.read_until("online consumer:")
    os.write(demo.out, CTRL_C)
    text = demo.read_all()
    assert os.waitstatus_to_exitcode(os.waitpid(demo.pid, 0)[1]) == 130
    assert "stopped; nothing is left running" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    _assert_nothing_is_left(demo)


@pytest.mark.parametrize(
    ("victim", "expected"),
    [("ottla serve", "error: the broker: ended"), ("watching", "error: online consumer: was ended by signal 9")],
)
def test_demo_fails_at_once_and_names_the_process_that_died(demo: RunOfDemo, victim: str, expected: str) -> None:
    demo.start("--events", "200000")
    demo.read_until("produced ")
    pids = eventually(lambda: [pid for pid, command in demo.processes().items() if victim in command])
    os.kill(pids[0], signal.SIGKILL)
    began_s = time.monotonic()
    text = demo.read_all()
    assert demo.process.wait() == 1
    assert expected in text
    assert time.monotonic() - began_s < ENDED_WITHIN_S
    _assert_nothing_is_left(demo)


def test_directory_in_use_is_not_touched(demo: RunOfDemo, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    demo.start("--keep", str(tmp_path))
    text = demo.read_all()
    assert demo.process.wait() == 1
    assert text.splitlines()[0] == f"error: {tmp_path} is not empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
