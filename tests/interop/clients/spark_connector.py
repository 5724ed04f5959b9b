"""The jars of Spark's official Kafka connector, from Maven."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java
from tests.peers.maven import copy_artifact

# The connector and its dependencies besides Spark.  Its own pom.xml names 4.2.0 of the second, which Maven does not
# find; only secured clusters need its new features.
ARTIFACTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


@cache
def connector_jars() -> list[Path]:
    """Raises PeerUnavailable or KafkaUnavailable."""
    find_java()
    return sorted(keep_in_cache("spark-kafka-connector-4.2.0-4.0.0", _bring).glob("*.jar"))


def _bring(fresh: Path) -> None:
    for artifact in ARTIFACTS:
        copy_artifact(artifact, fresh)
