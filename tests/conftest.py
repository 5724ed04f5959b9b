"""Settings of all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ottla.runtime.posix_disk import PosixDisk, PosixFile
from tests.long_suites import COLLECTED, SUITE_MARK, is_long
from tests.property.property_settings import examples_max
from tests.quick_java import use_quick_java
from tests.worker_groups import pytest_xdist_make_scheduler

__all__ = ["pytest_xdist_make_scheduler"]


def pytest_configure() -> None:
    """A shell starts background jobs with Ctrl-C ignored, and the programs that tests interrupt by it would
    inherit that.  Spark, where a test starts it, takes its Java's options from the environment."""
    use_quick_java()
    # Nor may the developer's own cluster be reached where a test names none.
    for name in ("OTTLA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "OTTLA_COMMAND_CONFIG"):
        os.environ.pop(name, None)
    os.environ["XDG_CONFIG_HOME"] = os.devnull
    # The duration of an example depends on the machine's load.
    common = settings.get_profile("default")
    settings.register_profile("tests", common, max_examples=examples_max(common.max_examples), deadline=None)
    settings.load_profile("tests")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without garbage collection: nothing becomes garbage while tests are imported, and passes over the growing heap
    took a third of the time.  What was imported is not visited later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before pytest's own hook selects by `-m`."""
    config.stash[COLLECTED] = tuple(item.nodeid for item in items)
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(SUITE_MARK)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spark's classes may have been archived since this process started."""
    if item.get_closest_marker("spark") is not None:
        use_quick_java()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A verb that is run in this process sets what is logged, and where: for its own test only."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        if root.level != level:
            root.setLevel(level)


@pytest.fixture(autouse=True)
def files_opened_by_the_test_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tests leave a log open, as a crash would.  Thousands of them would use up the descriptors that `select` can
    watch."""
    opened: list[PosixFile] = []
    make_file = PosixFile.__init__

    def make_and_remember(file: PosixFile, fd: int, path: str, disk: PosixDisk) -> None:
        make_file(file, fd, path, disk)
        opened.append(file)

    monkeypatch.setattr(PosixFile, "__init__", make_and_remember)
    yield
    for file in opened:
        file.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the seeds of simulations and the outcome under each Spark, also without failures; and the downloads and
    builds beside the tests, and why they failed: `./dev test` names the installer's output."""
    for done in terminalreporter.getreports(""):
        for name, value in getattr(done, "user_properties", ()):
            if name in ("simulation", "spark"):
                terminalreporter.write_line(f"{name}: {value}")
    report = Path(os.environ.get("OTTLA_PEERS_REPORT", os.devnull))
    if report.is_file():
        terminalreporter.section("clients and tools of other projects")
        terminalreporter.write_line(report.read_text(encoding="utf-8", errors="replace").rstrip())
