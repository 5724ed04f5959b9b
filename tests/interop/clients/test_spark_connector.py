"""Spark's official Kafka connector, from Maven: batch and streaming, both ways, with headers and every codec."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop.clients.scenarios import ENDS_WITHIN_S, run_scenarios
from tests.interop.clients.spark_connector import connector_jars
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S)]

SCENARIOS: Final = ("batch", "headers", "compression", "streaming")


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, str]]:
    """Each scenario's outcome; one Spark session runs them all."""
    pytest.importorskip("pyspark")
    try:
        jars = connector_jars()
    except (KafkaUnavailable, PeerUnavailable) as reason:
        pytest.skip(f"Spark's Kafka connector is not available: {reason}")
    program = Path(__file__).with_name("spark_program.py")
    listed = ",".join(map(str, jars))
    with RunningBroker(settings={"num.partitions": "3"}) as broker:
        yield run_scenarios([sys.executable, str(program), broker.bootstrap, "spark", listed], SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_spark_connector_is_served(scenario: str, told: dict[str, str]) -> None:
    assert told[scenario] == "ok"
