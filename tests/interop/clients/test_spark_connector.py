"""Spark's official Kafka connector, from Maven: batch and streaming, both ways, with headers and every codec."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop.clients.scenarios import ENDS_WITHIN_S, run_scenarios
from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import KafkaUnavailable, find_java
from tests.peers.maven import copy_artifact
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(2 * ENDS_WITHIN_S)]

# The connector and what it needs beside Spark itself.  Its own pom.xml names 4.2.0 of the second, which Maven does not
# find; only secured clusters need what is new there.
ARTIFACTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
SCENARIOS: Final = ("batch", "headers", "compression", "streaming")


def _bring(fresh: Path) -> None:
    for artifact in ARTIFACTS:
        copy_artifact(artifact, fresh)


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, str]]:
    """Each scenario's outcome; one Spark serves them all."""
    pytest.importorskip("pyspark")
    try:
        find_java()
        jars = keep_in_cache("spark-kafka-connector-4.2.0-4.0.0", _bring)
    except (KafkaUnavailable, PeerUnavailable) as reason:
        pytest.skip(f"Spark's Kafka connector is not available: {reason}")
    program = Path(__file__).with_name("spark_program.py")
    listed = ",".join(sorted(str(jar) for jar in jars.glob("*.jar")))
    with RunningBroker(settings={"num.partitions": "3"}) as broker:
        yield run_scenarios([sys.executable, str(program), broker.bootstrap, "spark", listed], SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_spark_connector_is_served(scenario: str, told: dict[str, str]) -> None:
    assert told[scenario] == "ok"
