"""Groups of connectors at Apache Kafka: `./dev chaos connectors --home apache-kafka`."""

from __future__ import annotations

import secrets

import pytest

from tests.connectors.homes import ApacheKafkaHome
from tests.connectors.run import SHORT, run
from tests.peers.apache_kafka import KafkaUnavailable


@pytest.mark.slow
@pytest.mark.interop
def test_group_at_apache_kafka_keeps_its_guarantees() -> None:
    plan = ["join", "kill"]
    seed = secrets.randbelow(1 << 31)
    try:
        result = run(ApacheKafkaHome, plan, seed=seed, size=SHORT)
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    told = f"seed={seed} {' '.join(plan)}\n{result}"
    print(told)  # noqa: T201  the seed is a result, too
    assert result.is_clean, told
    assert sum(result.strikes.values()) == len(plan), told
