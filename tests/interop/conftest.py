"""One Ottla broker for all interop tests, and a topic for each; its log is shown for failed tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.old_records import KEEPS_OLD_RECORDS

LOG_LINES_SHOWN = 15


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.fixture
def bootstrap(broker: RunningBroker) -> str:
    return broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A fresh topic of one partition."""
    name = f"interop-{uuid.uuid4().hex[:10]}"
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1)
    return name


@pytest.fixture
def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = getattr(item, "funcargs", {}).get("broker")
    if report.failed and isinstance(running, RunningBroker):
        report.sections.append(("the broker's log", "\n".join(running.log_lines[-LOG_LINES_SHOWN:])))
    return report
