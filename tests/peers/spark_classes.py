"""Archives Spark's classes: those of a session, queries with Python workers and a stream.

python -m tests.peers.spark_classes    such a session; prints the class path of its JVM
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.peers.class_archives import make_archive
from tests.peers.unavailable import PeerUnavailable
from tests.quick_java import SHORT_LIVED, SPARK_OPTIONS, spark_archive, spark_java

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVED_WITHIN_S: Final = 600


def archive_spark() -> None:
    """Raises PeerUnavailable where PySpark or Java is not installed, or the session failed."""
    java = spark_java()
    if java is None or find_spec("pyspark") is None:
        raise PeerUnavailable("PySpark or Java is not installed")

    def run(options: Sequence[str]) -> str:
        environment = {**os.environ, SPARK_OPTIONS: shlex.join((*SHORT_LIVED, *options))}
        command = [sys.executable, "-m", "tests.peers.spark_classes"]
        # The JVM inherits its outputs: so this waits for it, too, which writes the archive after its program's end.
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ARCHIVED_WITHIN_S, check=False
        )
        if done.returncode != 0:
            raise PeerUnavailable(f"a session of Spark failed: {done.stderr[-2000:]}")
        return done.stdout.splitlines()[-1]

    make_archive(spark_archive(java), java, run)


def main() -> None:
    import ottla.spark

    spark = ottla.spark.session("classes of Spark", master="local[2]")
    with tempfile.TemporaryDirectory() as scratch:
        table = str(Path(scratch) / "table")
        spark.range(100).selectExpr("id % 7 AS k", "CAST(id AS STRING) AS v").write.parquet(table)
        spark.read.parquet(table).groupBy("k").count().orderBy("k").mapInArrow(_same, "k long, count long").collect()
        counts = spark.readStream.schema("k long, v string").parquet(table).groupBy("k").count()
        stream = counts.writeStream.outputMode("update").foreachBatch(lambda rows, _: rows.toArrow())
        checkpoint = str(Path(scratch) / "checkpoint")
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    jvm = spark._jvm
    assert jvm is not None
    class_path = jvm.java.lang.System.getProperty("java.class.path")
    spark.stop()
    sys.stdout.write(f"{class_path}\n")


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
