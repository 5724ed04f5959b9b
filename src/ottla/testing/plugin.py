"""The pytest plugin.

    ottla_broker            a broker for all tests; ottla_settings are its settings
    ottla_namespace         topics and groups of one test at this broker
    ottla_schema_registry   the address of a schema registry beside this broker
    ottla_cluster           three brokers for all tests
    ottla_cluster_namespace topics and groups of one test at this cluster
    ottla_confluent_kafka, ottla_kafka_python, ottla_aiokafka
                            clients of these libraries, closed after the test
    ottla_spark             a Spark session

pytest imports it at every start in an environment that has Ottla, for tests that use it or not: so it imports nothing
but pytest, and a fixture imports what it needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.clients import AiokafkaClients, ConfluentKafkaClients, KafkaPythonClients
    from ottla.testing.controlled.broker import ControlledBroker
    from ottla.testing.controlled.cluster import ControlledCluster
    from ottla.testing.namespace import Namespace

BROKER_FIXTURE: Final = "ottla_broker"
CLUSTER_FIXTURE: Final = "ottla_cluster"
REGISTRY_FIXTURE: Final = "ottla_schema_registry"
CLUSTER_BROKERS_INI: Final = "ottla_cluster_brokers"
_NAMESPACE_FIXTURES: Final = ("ottla_namespace", "ottla_cluster_namespace")
_REGISTRY_SETTING: Final = "schema.registry.listeners"
# Those of the fixtures, from the first test that requests them to the end of the session.
_BROKER: Final = pytest.StashKey["ControlledBroker"]()
_CLUSTER: Final = pytest.StashKey["ControlledCluster"]()
RunningT = TypeVar("RunningT")
# How many lines the log of each broker had when the test started.
_LINES_COUNTS: Final = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(CLUSTER_BROKERS_INI, f"The count of brokers of the fixture {CLUSTER_FIXTURE}.", default="3")


@pytest.fixture(scope="session")
def ottla_settings() -> Mapping[str, str]:
    """The settings of `ottla_broker` and of the brokers of `ottla_cluster`, by Kafka's names; write a fixture of this
    name to give them others."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(request: pytest.FixtureRequest, ottla_settings: Mapping[str, str]) -> Iterator[ControlledBroker]:
    """A real broker of this process, for all its tests: `ottla_broker.bootstrap` is its address.

    A test may kill it, pause it, slow it down, fill its disk and move its clock: that is undone after each test.
    """
    from ottla.testing.controlled.broker import ControlledBroker

    settings = {**_registry_settings(request.session), **ottla_settings}
    with closing(ControlledBroker(settings)) as broker:
        broker.launch()
        # Nearly every test needs it: this process imports it while the broker's imports what it needs.
        import ottla.testing.namespace  # noqa: F401

        broker.wait_until_ready()
        with _kept(request.config, _BROKER, broker):
            yield broker


@pytest.fixture
def ottla_namespace(request: pytest.FixtureRequest, ottla_broker: ControlledBroker) -> Iterator[Namespace]:
    """Topics and groups of this test alone, which are gone after it: `ottla_namespace.topic("orders")` makes one."""
    yield from _namespace(request, ottla_broker)


@pytest.fixture
def ottla_schema_registry(
    request: pytest.FixtureRequest, ottla_broker: ControlledBroker, ottla_settings: Mapping[str, str]
) -> str:
    """The URL of a schema registry that keeps its schemas at `ottla_broker`.  Skips without `ottla[schemas]`."""
    from ottla.model.errors import ConfigError
    from ottla.runtime.installed import SCHEMAS, require_modules

    try:
        require_modules(REGISTRY_FIXTURE, SCHEMAS, "schemas")
    except ConfigError as error:
        pytest.skip(f"{error}: {error.hint}")
    if _REGISTRY_SETTING not in {**_registry_settings(request.session), **ottla_settings}:
        pytest.fail(
            f"{REGISTRY_FIXTURE} is started with the broker: request it as an argument of a test", pytrace=False
        )
    return ottla_broker.schema_registry_url


@pytest.fixture(scope="session")
def ottla_cluster(request: pytest.FixtureRequest, ottla_settings: Mapping[str, str]) -> Iterator[ControlledCluster]:
    """A real cluster for all tests of this process, of `ottla_cluster_brokers` brokers: `ottla_cluster.bootstrap`.

    A test may do to `ottla_cluster.broker(2)` what it may do to `ottla_broker`: that is undone after each test.
    """
    from ottla.testing.controlled.cluster import ControlledCluster

    brokers_count = str(request.config.getini(CLUSTER_BROKERS_INI))
    if not (brokers_count.isdecimal() and int(brokers_count) > 0):
        pytest.fail(f"{CLUSTER_BROKERS_INI} is a count of brokers, and not {brokers_count!r}", pytrace=False)
    settings = {name: text for name, text in ottla_settings.items() if name != _REGISTRY_SETTING}
    with ControlledCluster(int(brokers_count), settings) as cluster, _kept(request.config, _CLUSTER, cluster):
        yield cluster


@pytest.fixture
def ottla_cluster_namespace(request: pytest.FixtureRequest, ottla_cluster: ControlledCluster) -> Iterator[Namespace]:
    """Topics and groups of this test alone at `ottla_cluster`, which are gone after it."""
    yield from _namespace(request, ottla_cluster)


@pytest.fixture
def ottla_confluent_kafka(request: pytest.FixtureRequest) -> Iterator[ConfluentKafkaClients]:
    """Clients of confluent-kafka: `producer(orders)`, `consumer(orders)`, `consumer(orders, group="billing")`."""
    _require_library(request, "confluent_kafka", "confluent-kafka")
    from ottla.testing.clients import ConfluentKafkaClients

    clients = ConfluentKafkaClients()
    yield clients
    clients.close()


@pytest.fixture
def ottla_kafka_python(request: pytest.FixtureRequest) -> Iterator[KafkaPythonClients]:
    """Clients of kafka-python: `producer(orders)`, `consumer(orders)`, `consumer(orders, group="billing")`."""
    _require_library(request, "kafka", "kafka-python")
    from ottla.testing.clients import KafkaPythonClients

    clients = KafkaPythonClients()
    yield clients
    clients.close()


@pytest.fixture
def ottla_aiokafka(request: pytest.FixtureRequest) -> Iterator[AiokafkaClients]:
    """Clients of aiokafka, made in a coroutine: `async with ottla_aiokafka.consumer(orders) as consumer`."""
    _require_library(request, "aiokafka", "aiokafka")
    from ottla.testing.clients import AiokafkaClients

    clients = AiokafkaClients()
    yield clients
    clients.close()


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
    item.stash[_LINES_COUNTS] = {name: broker.log_lines_count for name, broker in _brokers(item.config).items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Undo what the test did to brokers: before fixtures end, since they may need them, and what these did."""
    failure = _restored(item.config)
    try:
        yield
    finally:
        # At the end of the session the fixtures have ended, and nothing is left to restore.
        later = _restored(item.config)
        if later is not None:
            raise later
    if failure is not None:
        raise failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows the logs of its brokers of that time."""
    report = yield
    if report.failed:
        counts = item.stash.get(_LINES_COUNTS, {})
        for name, broker in _brokers(item.config).items():
            lines = broker.log_lines_after(counts.get(name, 0))
            if lines and name.partition(" ")[0] in getattr(item, "fixturenames", ()):
                report.sections.append((f"{name} ({report.when})", "\n".join(lines)))
    return report


@contextmanager
def _kept(config: pytest.Config, key: pytest.StashKey[RunningT], running: RunningT) -> Iterator[None]:
    """Restored after each test until its fixture ends."""
    config.stash[key] = running
    try:
        yield
    finally:
        del config.stash[key]


def _brokers(config: pytest.Config) -> dict[str, ControlledBroker]:
    """All brokers that run, by their names in reports: `ottla_broker`, `ottla_cluster 1`."""
    broker, cluster = config.stash.get(_BROKER, None), config.stash.get(_CLUSTER, None)
    found = {} if broker is None else {BROKER_FIXTURE: broker}
    if cluster is not None:
        found |= {f"{CLUSTER_FIXTURE} {node_id}": cluster.broker(node_id) for node_id in cluster.brokers}
    return found


def _restored(config: pytest.Config) -> Exception | None:
    """Undo what was done to all that runs; the first failure."""
    failure: Exception | None = None
    for running in (config.stash.get(_BROKER, None), config.stash.get(_CLUSTER, None)):
        if running is not None:
            try:
                running.restore()
            except Exception as error:  # noqa: BLE001 (raised when the other is restored)
                failure = failure or error
    return failure


def _namespace(request: pytest.FixtureRequest, at: ControlledBroker | ControlledCluster) -> Iterator[Namespace]:
    with at.namespace(request.node.name) as namespace:
        yield namespace
        # Fixtures that ended before this one may have stopped a broker.
        at.restore()


def _registry_settings(session: pytest.Session) -> Mapping[str, str]:
    """A registry beside the broker, if a test of the session has its fixture and the packages for it are there."""
    if not any(REGISTRY_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items):
        return {}
    from ottla.model.errors import ConfigError
    from ottla.runtime.installed import SCHEMAS, require_modules

    try:
        require_modules(REGISTRY_FIXTURE, SCHEMAS, "schemas")
    except ConfigError:
        return {}
    return {_REGISTRY_SETTING: "http://127.0.0.1:0"}


def _require_library(request: pytest.FixtureRequest, module: str, package: str) -> None:
    """Skips without the library.  Its clients are closed before the topics and groups of the test are deleted."""
    pytest.importorskip(module, reason=f"{request.fixturename} needs {package}: pip install {package}")
    for fixture in _NAMESPACE_FIXTURES:
        if fixture in request.fixturenames:
            request.getfixturevalue(fixture)
