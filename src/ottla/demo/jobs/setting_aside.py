"""Malformed events become dead letters: in the topic's dead-letter topic, and in a table."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ottla.demo.jobs.parsing import with_error
from ottla.demo.jobs.site import Site
from ottla.demo.lake import DEAD_LETTERS
from ottla.demo.services import TOPICS
from ottla.spark.dead_letters import DeadLetters


def set_aside(spark: SparkSession, site: Site) -> int:
    """How many events are well-formed; the others were set aside."""
    rows = spark.readStream.format("ottla").options(**site.source(*TOPICS, includeHeaders="true")).load()
    letters = DeadLetters(site.bootstrap, error="error", table=site.lake / DEAD_LETTERS, stage="PARSE")
    # By batch: one that is run again counts once.
    well_formed: dict[int, int] = {}

    def count(good: DataFrame, batch_id: int) -> None:
        well_formed[batch_id] = good.count()

    site.run(DEAD_LETTERS, with_error(rows).writeStream.foreachBatch(letters.each_batch(count)))
    return sum(well_formed.values())
