"""Topics in SQL alone: as a view, and not as a table of a catalog."""

from __future__ import annotations

import uuid

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ottla.testing import ControlledBroker, produce

pytestmark = [pytest.mark.spark]


def test_view_over_a_topic_is_read_with_its_options(spark: SparkSession) -> None:
    view = f"clicks_{uuid.uuid4().hex[:8]}"
    with ControlledBroker() as broker, broker.namespace() as topics:
        clicks = topics.topic("clicks")
        produce(clicks, [b"%d" % number for number in range(10)])
        spark.sql(
            f"CREATE TEMPORARY VIEW {view} USING ottla OPTIONS ("
            f"'kafka.bootstrap.servers' '{broker.bootstrap}', 'subscribe' '{clicks}', 'startingOffsets' 'earliest')"
        )
        found = spark.sql(f"SELECT CAST(value AS STRING) AS value, offset FROM {view} WHERE offset < 3 ORDER BY offset")
        assert [(row["value"], row["offset"]) for row in found.collect()] == [("0", 0), ("1", 1), ("2", 2)]
        spark.sql(f"DROP VIEW {view}")


def test_table_of_a_catalog_is_refused_when_it_is_created(spark: SparkSession) -> None:
    """Spark would read it without its options."""
    table = f"clicks_{uuid.uuid4().hex[:8]}"
    with pytest.raises(AnalysisException, match="a view keeps them: CREATE TEMPORARY VIEW"):
        spark.sql(
            f"CREATE TABLE {table} USING ottla OPTIONS ("
            f"'kafka.bootstrap.servers' 'localhost:9092', 'subscribe' 'clicks', 'startingOffsets' 'earliest')"
        )
    assert not spark.catalog.tableExists(table)
