"""The pytest plugin: fixtures `ottla_broker`, `ottla_namespace`, `ottla_spark`, `ottla_settings`.

pytest imports it at every start in an environment that has Ottla, for tests that use it or not: so it imports nothing
but pytest, and a fixture imports what it needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.controlled.broker import ControlledBroker
    from ottla.testing.namespace import Namespace

BROKER_FIXTURE: Final = "ottla_broker"
# Its broker, once a test has requested it.
_BROKER: Final = pytest.StashKey["ControlledBroker"]()
# How many lines its log had when the test started.
_LINES_COUNT: Final = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def ottla_settings() -> Mapping[str, str]:
    """The settings of `ottla_broker`, by Kafka's names; write a fixture of this name to give it others."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(request: pytest.FixtureRequest, ottla_settings: Mapping[str, str]) -> Iterator[ControlledBroker]:
    """A real broker of this process, for all its tests: `ottla_broker.bootstrap` is its address.

    A test may kill it, pause it, slow it down, fill its disk and move its clock: that is undone after each test.
    """
    from ottla.testing.controlled.broker import ControlledBroker

    with ControlledBroker(ottla_settings) as broker:
        request.config.stash[_BROKER] = broker
        try:
            yield broker
        finally:
            del request.config.stash[_BROKER]


@pytest.fixture
def ottla_namespace(request: pytest.FixtureRequest, ottla_broker: ControlledBroker) -> Iterator[Namespace]:
    """Topics and groups of this test alone, which are gone after it: `ottla_namespace.topic("orders")` makes one."""
    with ottla_broker.namespace(request.node.name) as namespace:
        yield namespace
        # Fixtures that ended before this one may have stopped the broker.
        ottla_broker.restore()


@pytest.fixture(scope="session")
def ottla_spark() -> Iterator[SparkSession]:
    """A Spark session on this machine with the source `ottla`.  Skips without pyspark, and without a Java for it."""
    from ottla.runtime.installation import install_command

    for module in ("pyspark", "pyarrow"):
        pytest.importorskip(module, reason=f"ottla_spark needs {module}: {install_command('spark')}")
    from pyspark.sql import SparkSession

    import ottla.spark
    from ottla.spark.java_install import NoJava

    other = SparkSession.getActiveSession()
    try:
        spark = ottla.spark.session("ottla_spark", master="local[2]")
    except NoJava as error:
        pytest.skip(f"ottla_spark: {error}: {error.hint}")
    yield spark
    if other is None:
        spark.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    broker = item.config.stash.get(_BROKER, None)
    item.stash[_LINES_COUNT] = 0 if broker is None else broker.log_lines_count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Undo what the test did to the broker: before fixtures end, since they may need it, and what these did."""
    failure: Exception | None = None
    broker = item.config.stash.get(_BROKER, None)
    if broker is not None:
        try:
            broker.restore()
        except Exception as error:  # noqa: BLE001 (raised when the fixtures have ended)
            failure = error
    try:
        yield
    finally:
        # None: the session has ended, and its broker with it.
        broker = item.config.stash.get(_BROKER, None)
        if broker is not None:
            broker.restore()
    if failure is not None:
        raise failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows its broker's log of that time."""
    report = yield
    broker = item.config.stash.get(_BROKER, None)
    if report.failed and broker is not None and BROKER_FIXTURE in getattr(item, "fixturenames", ()):
        lines = broker.log_lines_after(item.stash.get(_LINES_COUNT, 0))
        if lines:
            report.sections.append((f"{BROKER_FIXTURE} ({report.when})", "\n".join(lines)))
    return report
