"""What is in the values of records: well-formed events, and those that are not."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

# A value's document, null where it is not JSON.
DOCUMENT: Final = "try_parse_json(CAST(value AS STRING))"
PROBLEM: Final = "the value is not JSON"


def with_error(rows: DataFrame) -> DataFrame:
    """The rows with a column `error`: null for a well-formed event."""
    return rows.selectExpr("*", f"CASE WHEN {DOCUMENT} IS NULL THEN '{PROBLEM}' END AS error")


def page_views(rows: DataFrame) -> DataFrame:
    """Columns at (a timestamp), member, page; of well-formed page views."""
    documents = rows.selectExpr(f"{DOCUMENT} AS event").where("event IS NOT NULL")
    return documents.selectExpr(
        "timestamp_millis(variant_get(event, '$.at_ms', 'bigint')) AS at",
        "variant_get(event, '$.member', 'bigint') AS member",
        "variant_get(event, '$.page', 'string') AS page",
    )
