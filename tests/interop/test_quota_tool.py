"""Apache Kafka's `kafka-configs` sets quotas here as it does there, and describes them."""

from __future__ import annotations

import pytest

from ottla.client.admin.quotas import SetQuotas, alter_quotas, describe_quotas
from ottla.client.wire.cluster import Cluster
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.testing.broker import RunningBroker
from tests.peers.java_tool import CONFIGS_COMMAND, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop


def kafka_configs(broker: RunningBroker, *arguments: str) -> str:
    try:
        done = run_tool(CONFIGS_COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_kafka_configs_sets_describes_and_deletes_quotas(broker: RunningBroker) -> None:
    of_both = ("--entity-type", "users", "--entity-name", "dora", "--entity-type", "clients", "--entity-default")
    kafka_configs(broker, "--alter", *of_both, "--add-config", "producer_byte_rate=1048576,request_percentage=150")
    kafka_configs(broker, "--alter", "--ip", "10.0.0.7", "--add-config", "connection_creation_rate=9")
    with Cluster(broker.bootstrap) as cluster:
        assert describe_quotas(cluster) == [
            SetQuotas(QuotaEntity("dora", ""), {"producer_byte_rate": 1_048_576.0, "request_percentage": 150.0}),
            SetQuotas(QuotaEntity(ip="10.0.0.7"), {"connection_creation_rate": 9.0}),
        ]
    described = kafka_configs(broker, "--describe", *of_both)
    assert "user-principal 'dora', the default client-id" in described
    assert "producer_byte_rate=1048576.0" in described
    kafka_configs(broker, "--alter", *of_both, "--delete-config", "producer_byte_rate,request_percentage")
    with Cluster(broker.bootstrap) as cluster:
        alter_quotas(cluster, QuotaEntity(ip="10.0.0.7"), {QuotaKind.CONNECTION_CREATION_RATE: None})
        assert describe_quotas(cluster) == []
