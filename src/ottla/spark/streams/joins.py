"""Two streams, joined where their event times are close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark.errors import SparkOptionError

How: TypeAlias = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]
_RIGHT: str = "_right_{}"


def join_within(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    times: tuple[str, str],
    after: str,
    before: str = "0 seconds",
    delays: tuple[str, str] | None = None,
    how: How = "inner",
) -> DataFrame:
    """Rows of both with equal `on`, where the right one's time is from `before` before to `after` after the left one's.

        streams.join_within(
            impressions, clicks, "impression_id", times=("shown_at", "clicked_at"),
            after="10 minutes", delays=("5 minutes", "5 minutes"), how="left_outer",
        )

    times   the event times of the left and of the right rows
    delays  how late rows of each may be; None: both have watermarks.  They bound the state, and decide when a row
            without a partner is emitted (outer joins)

    Both inclusive.  The columns are those of the left and the others of the right; besides `on` no name is in both.
    Spark's watermark is that of the input which is behind (`spark.sql.streaming.multipleWatermarkPolicy`).
    """
    keys = [on] if isinstance(on, str) else list(on)
    left_time, right_time = times
    twice = sorted(set(left.columns) & set(right.columns) - set(keys))
    if twice:
        raise SparkOptionError(f"both sides have {', '.join(twice)}", hint="rename them on one side")
    if delays is not None:
        left, right = left.withWatermark(left_time, delays[0]), right.withWatermark(right_time, delays[1])
    for key in keys:
        right = right.withColumnRenamed(key, _RIGHT.format(key))
    is_close = F.expr(
        f"`{right_time}` >= `{left_time}` - INTERVAL {before} AND `{right_time}` <= `{left_time}` + INTERVAL {after}"
    )
    condition = is_close
    for key in keys:
        condition = condition & (F.col(key) == F.col(_RIGHT.format(key)))
    joined = left.join(right, condition, how)
    if how == "left_semi":
        return joined
    for key in keys:
        # Of a right row without a partner the left key is null.
        joined = joined.withColumn(key, F.coalesce(key, _RIGHT.format(key))).drop(_RIGHT.format(key))
    return joined
