"""The topic of alerts: one key for each member and window, so that an alert that is sent again is the same alert."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla import SimpleConsumer
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster

REPLICAS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """`count` actions of `member` in `[start_ms, end_ms)`."""

    member: str
    start_ms: int
    end_ms: int
    count: int


def ensure_alert_topic(bootstrap: str, topic: str) -> None:
    """Compacted: the brokers keep one of several alerts with the same key."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).ensure_topic(topic, 1, REPLICAS_MAX, {"cleanup.policy": "compact"})


def alert_writer(bootstrap: str, topic: str) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: writes the alerts of a batch; all replicas in sync have them when it returns."""

    def write(alerts: DataFrame, batch_id: int) -> None:
        records = alerts.select(
            F.concat_ws(" ", "start_ms", "member").cast("binary").alias("key"),
            F.to_json(F.struct("member", "start_ms", "end_ms", "count")).cast("binary").alias("value"),
            F.lit(topic).alias("topic"),
        )
        records.write.format("ottla").option("kafka.bootstrap.servers", bootstrap).mode("append").save()

    return write


def read_alerts(bootstrap: str, topic: str) -> list[Alert]:
    """All alerts, each once, by window and member.

    An alert that is sent again after a kill has the same key and the same value: the last one of each key counts.
    """
    found: dict[bytes | None, Alert] = {}
    with Cluster(bootstrap) as cluster:
        partitions = cluster.partitions(topic)
    for partition in partitions:
        with SimpleConsumer(bootstrap, topic, partition) as consumer:
            offset, end = consumer.earliest(), consumer.latest()
            while offset < end and (messages := consumer.fetch(offset)):
                for message in messages:
                    found[message.key] = Alert(**json.loads(message.value or b"{}"))
                offset = messages[-1].offset + 1
    return sorted(found.values(), key=lambda alert: (alert.start_ms, alert.member))
