"""Makes the data source known to a session, wherever the session, the thread and the interpreter come from."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from ottla.spark.errors import SparkUserError
from ottla.spark.jvm import is_remote, java_session, jvm_of
from ottla.spark.worker_python import settle_worker_python

_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"


# A name of a format, as plans show it on one line.
_LABEL: Final = re.compile(r"[\w.*-][\w.*, -]{0,199}")


class BadLabel(SparkUserError):
    """The label is no text that plans can show."""

    hint = "use letters, digits, and any of . _ - * and commas: the topics, say"


def register_source(spark: SparkSession, label: str | None = None) -> str:
    """After this, `spark.read.format("ottla")`, `readStream`, `write` and `writeStream` work in this session.

    It is the calling thread's active session from now on.  With Spark Connect the server plans and reads: its Python
    must have this package.

    Returns the name of the format: `ottla`, or with a label a second one, which plans show.

    Raises `BadLabel`, and `WorkerPythonMissing` when Spark could not start the Python that plans reads and writes on
    the driver.
    """
    from ottla.spark.source.data_source import OttlaDataSource

    source = OttlaDataSource if label is None else labelled(OttlaDataSource, label)
    if is_remote(spark):
        _register(spark, source)
        return source.name()
    settle_worker_python(spark.sparkContext)
    # Spark looks a source up in the session that is active in the calling thread: in another one's it would find that
    # session's source, and refuse this one as a second of its name; a thread without one could read, and not write.
    jvm_of(spark.sparkContext).org.apache.spark.sql.SparkSession.setActiveSession(java_session(spark))
    _register(spark, source)
    return source.name()


def labelled(source: type[DataSource], label: str) -> type[DataSource]:
    """The source under another name: the only text of its own that Spark shows of a source in Python."""
    if _LABEL.fullmatch(label) is None:
        raise BadLabel(f"the label is {label[:200]!r}")
    name = f"{source.name()}:{label}"

    class Labelled(source):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return name

    return Labelled


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 keeps the source of this name that it has found: this very class.
        if error.getCondition() != _EXISTS:
            raise
