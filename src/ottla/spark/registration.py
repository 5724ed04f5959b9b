"""Makes the data source known to a session, wherever the session, the thread and the interpreter come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ottla.spark.jvm import java_session, jvm_of
from ottla.spark.worker_python import settle_worker_python


def register_source(spark: SparkSession) -> None:
    """After this, `spark.read.format("ottla")`, `readStream`, `write` and `writeStream` work in this session.

    Raises `WorkerPythonMissing` when Spark could not start the Python that plans reads and writes on the driver.
    """
    from ottla.spark.source.data_source import OttlaDataSource

    settle_worker_python(spark.sparkContext)
    with active_session(spark):
        spark.dataSource.register(OttlaDataSource)


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Spark looks a source up in the session that is active in the calling thread: in another one's, it would find
    that session's source and refuse this one as a second of its name.
    """
    sessions = jvm_of(spark.sparkContext).org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session(spark))
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
