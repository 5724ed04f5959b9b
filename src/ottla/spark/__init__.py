"""PySpark: Kafka topics as DataFrames and streams, without a jar.

    import ottla.spark

    spark = ottla.spark.session("clicks per minute")     # or: ottla.spark.register(your_session)
    clicks = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

The options and columns are those of Spark's own connector for Kafka.  `ottla.spark.lake` loads topics into a Delta
table.  Importing this package imports no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.runtime.installed import naming_what_to_install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["offsets_behind", "register", "session"]


def register(spark: SparkSession, label: str | None = None) -> str:
    """Make the source `ottla` known to a session: `spark.read`, `readStream`, `write`, `writeStream`.

    Spark finds it automatically where its Python (`PYSPARK_PYTHON`, else `python3`) has this package.  This call makes
    it work in an environment that is not activated, too, and ships what `addPyFile` has brought.

    The session becomes the active one of the calling thread, in which Spark looks sources up: call it in each thread
    that writes, and for each `spark.newSession()`.  A session of Spark Connect may be given as well; its server plans
    and reads, so the server's Python must have this package.

    With a `label` the source gets a second name, which plans and the web interface show, and which is returned:

        clicks = spark.read.format(ottla.spark.register(spark, "clicks"))     # BatchScan ottla:clicks[...]

    Raises `ottla.spark.worker_python.WorkerPythonMissing`, `ottla.spark.registration.BadLabel`.
    """
    with naming_what_to_install():
        from ottla.spark.registration import register_source

    return register_source(spark, label)


def session(app_name: str | None = None, *, master: str | None = None, **settings: str) -> SparkSession:
    """A quiet session with the source registered: on this machine, or where `spark-submit` says.

    `app_name`, `master` and `settings` (Spark's own names) win over `spark-submit` and `spark-defaults.conf`, and these
    over the defaults of `ottla.spark.local_session`.  A session that runs already is taken, with `settings` applied.

        spark = ottla.spark.session("clicks per minute", **{"spark.driver.memory": "4g"})

    Raises `ottla.spark.java_install.NoJava`, and `ottla.errors.ConfigError` where Spark cannot listen at its port or
    address.
    """
    with naming_what_to_install():
        from ottla.spark.local_session import start_session

    return start_session(app_name, master, settings)


def offsets_behind(progress: StreamingQueryProgress) -> dict[str, dict[int, int]]:
    """How many offsets of each topic and partition a stream has not read: of `query.lastProgress`, or an event's.

        behind = ottla.spark.offsets_behind(query.lastProgress)     # {"clicks": {0: 0, 1: 30}}

    Offsets of a compacted topic, or of one with transactions, count records that are not there any more.  Raises
    `ottla.spark.errors.NotInThisSpark` before Spark 4.2.
    """
    from ottla.spark.source.stream_progress import behind

    return behind(progress.sources)
