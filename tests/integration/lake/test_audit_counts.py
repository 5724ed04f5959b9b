"""The counts of a table's commits are in the audit's topic once, however often they are reported."""

from __future__ import annotations

import json
from uuid import UUID

from ottla.model.identifiers import uuid_to_text
from ottla.spark.lake.formats import DeltaTarget
from ottla.spark.lake.lake_table import TableCommit
from ottla.spark.lake.load import publish_table_counts
from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import LakeTarget
from ottla.spark.options.connection import Connection
from ottla.testing import ControlledBroker, consume_all

WINDOW_MS = 600_000
TOPIC_ID = UUID(int=2011)


def facts(first: int, end: int) -> dict[str, str]:
    return {
        "ottla.topic_ids": json.dumps({"clicks": uuid_to_text(TOPIC_ID)}),
        "ottla.first_offsets": json.dumps({"clicks": {"0": first}}),
        "ottla.offsets": json.dumps({"clicks": {"0": end}}),
        "ottla.window_ms": str(WINDOW_MS),
        "ottla.window_counts": json.dumps({"clicks": {str(WINDOW_MS): end - first}}),
    }


def test_each_commit_is_counted_once_also_by_a_process_that_follows_a_dead_one(target: LakeTarget) -> None:
    table = DeltaTarget(target).open(RowShape().first_schema, RowShape().partition_by)
    table.commit(TableCommit(numbers={"a": 5}, facts=facts(0, 5)))
    table.commit(TableCommit(numbers={"a": 8}, facts=facts(5, 8)))
    with ControlledBroker() as broker:
        publish_table_counts(table, Connection(broker.bootstrap))
        first = consume_all("ottla-audit", bootstrap=broker.bootstrap)
        table.refresh()
        publish_table_counts(table, Connection(broker.bootstrap))
        again = consume_all("ottla-audit", bootstrap=broker.bootstrap)
    counts = [json.loads(record.value or b"") for record in first]
    assert sorted((count["tier"], count["topic"], count["records"]) for count in counts) == [
        ("lake", "clicks", 3),
        ("lake", "clicks", 5),
    ]
    told = {(record.key, record.value) for record in first}
    assert len(again) == 4
    assert {(record.key, record.value) for record in again} == told


def test_an_unreachable_cluster_does_not_stop_a_load(target: LakeTarget) -> None:
    table = DeltaTarget(target).open(RowShape().first_schema, RowShape().partition_by)
    table.commit(TableCommit(numbers={"a": 5}, facts=facts(0, 5)))
    publish_table_counts(table, Connection("127.0.0.1:1", call_timeout_ms=500))
