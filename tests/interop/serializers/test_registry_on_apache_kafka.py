"""`ottla registry serve` over an Apache Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from tests.peers.apache_kafka import ApacheKafka, KafkaUnavailable
from tests.registry_process import ask, serving

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka() as running:
            yield running
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be had: {error}")


def test_registry_keeps_its_schemas_in_apache_kafka(kafka: ApacheKafka) -> None:
    with serving(kafka.bootstrap) as first:
        assert ask("POST", f"{first.url}/subjects/a/versions", {"schema": '"int"'})[1]["id"] == 1
        assert ask("DELETE", f"{first.url}/subjects/a") == (200, [1])
        with serving(kafka.bootstrap) as second:
            assert ask("POST", f"{first.url}/subjects/b/versions", {"schema": '"float"'})[1]["id"] == 2
            second.process.kill()
            second.process.wait()
            # The second one takes over.
            assert ask("POST", f"{first.url}/subjects/b/versions", {"schema": '"double"'})[1]["id"] == 3
    with serving(kafka.bootstrap) as last:
        assert ask("GET", f"{last.url}/subjects?deleted=true") == (200, ["a", "b"])
        assert ask("GET", f"{last.url}/subjects/b/versions") == (200, [1, 2])
    with Cluster(kafka.bootstrap) as cluster:
        found = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, "_schemas"), ["cleanup.policy"])
    assert found["cleanup.policy"].value == "compact"
