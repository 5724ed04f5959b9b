"""Streams of page views: the top pages of five minutes, and members' sessions."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ottla.demo.expected import DELAY_MS, GAP_MS, TOP_PAGES_COUNT, TOP_PAGES_MS
from ottla.demo.jobs.parsing import page_views
from ottla.demo.jobs.site import Site
from ottla.demo.lake import LATE_VIEWS, SESSIONS, TOP_PAGES
from ottla.demo.services import PAGE_VIEWS
from ottla.spark import streams


def run_top_pages(spark: SparkSession, site: Site, views_per_batch: int) -> None:
    """In several batches: so what is late for its window is late here, and goes to a table of its own."""
    size = f"{TOP_PAGES_MS} milliseconds"
    late = streams.LateRows(
        site.source(PAGE_VIEWS, maxOffsetsPerTrigger=str(views_per_batch)),
        prepare=page_views,
        drops=streams.drops_windows("at", size),
        keep=lambda rows, batch_id: site.keep(LATE_VIEWS, rows.select("at", "member", "page"), batch_id),
        checkpoint=site.checkpoint(TOP_PAGES),
    )
    counts = streams.windowed(late.stream(spark), "at", size, by="page", delay=f"{DELAY_MS} milliseconds").count()
    top = streams.top_k(counts, TOP_PAGES_COUNT)

    def keep(found: DataFrame, batch_id: int) -> None:
        site.keep(
            TOP_PAGES, found.selectExpr("window.start AS window_start", "rank", "page", "count AS views"), batch_id
        )

    site.run(TOP_PAGES, top.writeStream.foreachBatch(late.each_batch(keep)))


def run_sessions(spark: SparkSession, site: Site) -> None:
    """In one batch, for which nothing is late."""
    views = page_views(spark.readStream.format("ottla").options(**site.source(PAGE_VIEWS)).load())
    found = streams.sessions(
        views, "at", f"{GAP_MS} milliseconds", by="member", delay=f"{DELAY_MS} milliseconds"
    ).count()
    told = found.selectExpr(
        "member", "session_window.start AS began_at", "session_window.end AS ended_at", "count AS views"
    )

    def keep(batch: DataFrame, batch_id: int) -> None:
        site.keep(SESSIONS, batch, batch_id)

    site.run(SESSIONS, told.writeStream.foreachBatch(keep))
