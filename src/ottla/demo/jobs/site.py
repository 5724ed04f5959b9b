"""Where the demo's jobs read, write and keep their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark.lake.tables import append_once
from ottla.spark.lake.target import LakeTarget, parse_target


@dataclass(frozen=True, slots=True)
class Site:
    """`lake` has the tables, `checkpoints` the state of the streams."""

    bootstrap: str
    lake: Path
    checkpoints: Path

    def source(self, *topics: str, **more: str) -> dict[str, str]:
        """Options of the source for everything that the topics have."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            **more,
        }

    def table(self, name: str) -> LakeTarget:
        return parse_target(self.lake / name)

    def checkpoint(self, name: str) -> str:
        return str(self.checkpoints / name)

    def keep(self, name: str, rows: DataFrame, batch_id: int) -> None:
        """Append the rows of a batch to a table; once, also when the batch runs again."""
        append_once(self.table(name), rows.toArrow(), app_id=name, version=batch_id)

    def run(self, name: str, writer: DataStreamWriter) -> None:
        """Run a stream from its checkpoint through everything that is there."""
        query = writer.option("checkpointLocation", self.checkpoint(name)).trigger(availableNow=True).start()
        query.awaitTermination()
