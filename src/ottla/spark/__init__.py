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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make the source `ottla` known to a session: `spark.read`, `readStream`, `write`, `writeStream`.

    Spark finds it automatically where its Python (`PYSPARK_PYTHON`, else `python3`) has this package.  This call makes
    it work in an environment that is not activated, too, and ships what `addPyFile` has brought.

    The session becomes the active one of the calling thread, in which Spark looks sources up: call it in each thread
    that writes, and for each `spark.newSession()`.  A session of Spark Connect may be given as well; its server plans
    and reads, so the server's Python must have this package.

    Raises `ottla.spark.worker_python.WorkerPythonMissing`.
    """
    from ottla.spark.registration import register_source

    register_source(spark)


def session(app_name: str | None = None, *, master: str | None = None, **settings: str) -> SparkSession:
    """A quiet session with the source registered: on this machine, or where `spark-submit` says.

    `app_name`, `master` and `settings` (Spark's own names) win over `spark-submit` and `spark-defaults.conf`, and these
    over the defaults of `ottla.spark.local_session`.  A session that runs already is taken, with `settings` applied.

        spark = ottla.spark.session("clicks per minute", **{"spark.driver.memory": "4g"})

    Raises `ottla.spark.java_install.NoJava`.
    """
    from ottla.spark.local_session import start_session

    return start_session(app_name, master, settings)
