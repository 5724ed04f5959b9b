"""Makes the data source known to a session, wherever the session, the thread and the interpreter come from."""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from ottla.spark.jvm import is_remote, java_session, jvm_of
from ottla.spark.worker_python import settle_worker_python

_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register_source(spark: SparkSession) -> None:
    """After this, `spark.read.format("ottla")`, `readStream`, `write` and `writeStream` work in this session.

    It is the calling thread's active session from now on.  With Spark Connect the server plans and reads: its Python
    must have this package.

    Raises `WorkerPythonMissing` when Spark could not start the Python that plans reads and writes on the driver.
    """
    from ottla.spark.source.data_source import OttlaDataSource

    if is_remote(spark):
        _register(spark, OttlaDataSource)
        return
    settle_worker_python(spark.sparkContext)
    # Spark looks a source up in the session that is active in the calling thread: in another one's it would find that
    # session's source, and refuse this one as a second of its name; a thread without one could read, and not write.
    jvm_of(spark.sparkContext).org.apache.spark.sql.SparkSession.setActiveSession(java_session(spark))
    _register(spark, OttlaDataSource)


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 keeps the source of this name that it has found: this very class.
        if error.getCondition() != _EXISTS:
            raise
