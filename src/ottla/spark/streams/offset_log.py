"""A query's log of offsets, as its checkpoint has it: what each micro-batch reads, and its watermark.

Spark writes the entry of a batch before it runs it, and the batch is the same whenever it runs again.  An entry is
lines: the version of the form, the batch's metadata (`batchWatermarkMs`), and the end offset of each source, `-` for
one that has none.  A stateful operator drops rows by the watermark of the entry *before* (0 for the first batch), and
evicts by the batch's own; batches without data have entries, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ottla.spark.errors import BadCheckpoint
from ottla.spark.source.stream_offsets import StreamOffsets, from_checkpoint

VERSION: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """`ends`: of each source, in the order of the query; None where it has no offset."""

    watermark_ms: int
    ends: tuple[StreamOffsets | None, ...]


def parse_entry(text: str, name: str) -> LoggedBatch:
    """Raises `BadCheckpoint`; `name` is for its message."""
    version, _, rest = text.partition("\n")
    if version.strip() != VERSION:
        raise BadCheckpoint(f"{name} has the form {version.strip()[:20]!r}, and not {VERSION}", hint=_HINT)
    metadata, *offsets = rest.strip("\n").split("\n")
    try:
        watermark_ms = int(json.loads(metadata)["batchWatermarkMs"])
        ends = tuple(None if line == _NO_OFFSET else _ottla_offsets(json.loads(line)) for line in offsets)
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{name} cannot be read: {error!r}", hint=_HINT) from None
    return LoggedBatch(watermark_ms, ends)


_HINT: Final = "late rows need a checkpoint of Spark 4 whose sources are format('ottla')"


def read_entry(spark: SparkSession, checkpoint: str, batch_id: int) -> LoggedBatch:
    """The entry of a batch that runs or has run.  Raises `BadCheckpoint`."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        rows = spark.read.text(path, wholetext=True).collect()
    except AnalysisException as error:
        raise BadCheckpoint(
            f"{path} cannot be read: {error.getCondition()}", hint="give the query's own checkpointLocation"
        ) from error
    if len(rows) != 1:
        raise BadCheckpoint(f"{path} is {len(rows)} files", hint="give the query's own checkpointLocation")
    return parse_entry(rows[0]["value"], path)


def _ottla_offsets(found: Any) -> StreamOffsets | None:
    if not isinstance(found, dict):
        raise TypeError(f"{str(found)[:80]} are no offsets of a topic")
    return from_checkpoint(found)
