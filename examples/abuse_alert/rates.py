"""How many actions each member did in each window of time, as columns of Spark: nothing here starts anything."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.spark import streams

# An action that says it is so much later than its record was made is refused: it would make all others late.
AHEAD_MS_MAX = 3_600_000
_ACTION = "id string, at_ms bigint, member string"
_PROBLEM = f"""
CASE
    WHEN action.id IS NULL OR action.at_ms IS NULL OR action.member IS NULL
        THEN 'it is no JSON object with id, at_ms and member'
    WHEN action.at_ms NOT BETWEEN 0 AND unix_millis(timestamp) + {AHEAD_MS_MAX}
        THEN 'its at_ms is no time of the past'
END
"""


class Rule(NamedTuple):
    """More than `limit` actions of a member within `window`; a window begins every `slide`.

    delay   how late actions may be: a window is reported when an action is so much later than its end
    """

    limit: int
    window: str = "5 minutes"
    slide: str = "1 minute"
    delay: str = "10 minutes"


def parsed(records: DataFrame) -> DataFrame:
    """The records with `action` (id, at_ms, member) and `problem`, null where there is none.

    `{"id": "7f3a", "at_ms": 1307869200000, "member": "bob"}`; other fields do not matter.
    """
    action: Column = F.from_json(F.col("value").cast("string"), _ACTION)
    return records.withColumn("action", action).withColumn("problem", F.expr(_PROBLEM))


def windows_above(records: DataFrame, rule: Rule) -> DataFrame:
    """Rows of `member`, `start_ms`, `end_ms` and `count`: each window above the limit once, when it is complete.

    An action that was sent twice (its id says so) counts once.
    """
    actions = (
        parsed(records)
        .where("problem IS NULL")
        .select("action.id", "action.member", F.timestamp_millis("action.at_ms").alias("at"))
    )
    once = streams.dedup(actions, "id", time="at", delay=rule.delay)
    counts = streams.windowed(once, "at", rule.window, slide=rule.slide, by="member").count()
    return counts.where(F.col("count") > rule.limit).select(
        "member",
        F.unix_millis("window.start").alias("start_ms"),
        F.unix_millis("window.end").alias("end_ms"),
        "count",
    )
