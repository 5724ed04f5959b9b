"""Each client's suite: where its tests are, their requirements, and how they get a broker's address."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
# A member that is silent for a second is dropped in some of the tests; Kafka's lowest limit is six.
GROUP_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
# Tests of access rules need an authorizer, and all others a client that may do everything.
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class NotThatSource(ValueError):
    """The directory is not a tree of the suite's project; the text says what is missing."""


@dataclass(frozen=True)
class Suite:
    """`copied` and `tests` are paths in the client's tree.  The tests run in a copy, never in the caller's tree."""

    name: str
    repository: str
    copied: tuple[str, ...]
    tests: tuple[str, ...]
    # The client's version is in this file, after this expression.
    version_file: str
    version_pattern: str
    # `{version}` is the client's own version: where the tree cannot be used as it is, its release is installed.
    requirements: tuple[str, ...]
    environment: Callable[[str], Mapping[str, str]]
    settings: Mapping[str, str] = field(default_factory=lambda: GROUP_SETTINGS)
    # A conftest.py that replaces one of the suite's, which it imports as `original_conftest`.
    conftest: tuple[str, str] | None = None
    arguments: tuple[str, ...] = ()

    @property
    def expected_failures(self) -> Path:
        return HERE / "expected" / f"{self.name}.txt"

    def version_of(self, source: Path) -> str:
        """Raises NotThatSource."""
        missing = [part for part in (*self.copied, *self.tests, self.version_file) if not (source / part).exists()]
        if missing:
            raise NotThatSource(f"{source} is no tree of {self.repository}: it has no {missing[0]}")
        found = re.search(self.version_pattern, (source / self.version_file).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise NotThatSource(f"{source / self.version_file} has no version")
        return found[1]


def _host_and_port(bootstrap: str) -> Mapping[str, str]:
    return {"SUITE_BOOTSTRAP": bootstrap}


def _kafka_uri(bootstrap: str) -> Mapping[str, str]:
    return {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": "4.1.0", "KAFKA_ROOT": "."}


def _brokers(bootstrap: str) -> Mapping[str, str]:
    return {"BROKERS": bootstrap}


SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite(
            name="aiokafka",
            repository="aio-libs/aiokafka",
            copied=("tests", "pyproject.toml"),
            tests=tuple(
                f"tests/test_{part}.py"
                for part in (
                    "admin",
                    "client",
                    "conn",
                    "consumer",
                    "coordinator",
                    "pep492",
                    "producer",
                    "sender",
                    "transactional_consumer",
                    "transactional_producer",
                )
            ),
            version_file="aiokafka/__init__.py",
            version_pattern=r'^__version__ = "(.+)"',
            requirements=(
                "aiokafka=={version}",
                "async-timeout",
                "cramjam",
                "docker",
                "pytest",
                "pytest-asyncio",
                "pytest-mock",
                "pytest-timeout",
            ),
            environment=_host_and_port,
            # Its topics have two partitions unless a test says otherwise; one test sends requests to broker 0.
            settings={"num.partitions": "2", "node.id": "0", "group.initial.rebalance.delay.ms": "0"},
            conftest=("tests", "aiokafka_conftest.py"),
            # Its settings leave the loops' scope unset, which pytest-asyncio warns of, and warnings are errors.
            arguments=(
                "--timeout=120",
                "--docker-image=none:2.13_4.1.0",
                "--override-ini=asyncio_default_fixture_loop_scope=function",
            ),
        ),
        Suite(
            name="kafka-python",
            repository="dpkp/kafka-python",
            copied=("kafka", "test", "pyproject.toml"),
            tests=tuple(f"test/integration/test_{part}_integration.py" for part in ("admin", "consumer", "producer")),
            version_file="kafka/version.py",
            version_pattern=r"^__version__ = '(.+)'",
            requirements=("crc32c", "lz4", "pytest", "pytest-mock", "pytest-timeout", "python-snappy", "zstandard"),
            environment=_kafka_uri,
            # Its tests place replicas on broker 0.
            settings={**GROUP_SETTINGS, **AUTHORIZER, "num.partitions": "4", "node.id": "0"},
        ),
        Suite(
            name="confluent-kafka-python",
            repository="confluentinc/confluent-kafka-python",
            copied=("tests", "pyproject.toml"),
            tests=tuple(f"tests/integration/{part}" for part in ("admin", "consumer", "producer")),
            version_file="pyproject.toml",
            version_pattern=r'^version = "(.+)"',
            requirements=(
                "confluent-kafka[avro,json,protobuf,schemaregistry]=={version}",
                "async-timeout",
                "pytest",
                "pytest-asyncio",
                "pytest-timeout",
                "requests-mock",
                "respx",
                "trivup",
            ),
            environment=_brokers,
            # One of its tests expects a session time-out to be refused.
            settings={**AUTHORIZER, "group.initial.rebalance.delay.ms": "0"},
            arguments=("--timeout=120", "--override-ini=asyncio_default_fixture_loop_scope=function"),
        ),
    )
}
