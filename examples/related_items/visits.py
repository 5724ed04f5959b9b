"""Sessions of views, and the pairs of items in them, as columns of Spark: nothing here starts anything."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import streams

# A view that says it is so much later than its record was made is refused: it would make all others late.
AHEAD_MS_MAX = 3_600_000
_VIEW = "at_ms bigint, member string, item string"
_PROBLEM = f"""
CASE
    WHEN view.at_ms IS NULL OR view.member IS NULL OR view.item IS NULL
        THEN 'it is no JSON object with at_ms, member and item'
    WHEN view.at_ms NOT BETWEEN 0 AND unix_millis(timestamp) + {AHEAD_MS_MAX}
        THEN 'its at_ms is no time of the past'
END
"""


class Rule(NamedTuple):
    """A session ends when its member looks at nothing for `gap`; views may come `delay` late.

    items_max   a session with more items is left out: it has their square of pairs, and says nothing about any
    """

    gap: str = "30 minutes"
    delay: str = "10 minutes"
    items_max: int = 200


def parsed(records: DataFrame) -> DataFrame:
    """The records with `view` (at_ms, member, item) and `problem`, null where there is none.

    `{"at_ms": 1307869200000, "member": "bob", "item": "/jobs/7"}`; other fields do not matter.
    """
    view = F.from_json(F.col("value").cast("string"), _VIEW)
    return records.withColumn("view", view).withColumn("problem", F.expr(_PROBLEM))


def sessions_of(records: DataFrame, rule: Rule) -> DataFrame:
    """A row of `items` for each session, once, when it is complete: each item once, also one that was sent twice."""
    views = (
        parsed(records)
        .where("problem IS NULL")
        .select("view.member", "view.item", F.timestamp_millis("view.at_ms").alias("at"))
    )
    found = streams.sessions(views, "at", rule.gap, by="member", delay=rule.delay)
    return found.agg(F.collect_set("item").alias("items"))


def pairs_of(sessions: DataFrame, rule: Rule) -> DataFrame:
    """Rows of `item`, `other` and `count`: in how many of these sessions both are; each pair in both orders."""
    pairs = (
        sessions.where(F.size("items").between(2, rule.items_max))
        .select("items", F.explode("items").alias("item"))
        .select("item", F.explode("items").alias("other"))
        .where("item <> other")
    )
    return pairs.groupBy("item", "other").count()
