"""PySpark's doors to its Java process, which have private names, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the process with these settings of Spark, unless it runs; a later context takes what else it needs."""
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001


def jvm_of(context: SparkContext) -> Any:
    """Java's packages, as attributes."""
    jvm = context._jvm  # noqa: SLF001
    assert jvm is not None, "a context has its Java process"
    return jvm


def default_session() -> SparkSession | None:
    """The session that runs in this process, started by any thread."""
    session = SparkSession._instantiatedSession  # noqa: SLF001
    is_stopped = session is None or session.sparkContext._jsc is None  # noqa: SLF001
    return None if is_stopped else session


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: its Java process is the server's, and is not reached from here."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def java_session(spark: SparkSession) -> Any:
    """Spark's own object of a session."""
    return spark._jsparkSession  # noqa: SLF001


def free_checkpoint(rows: DataFrame) -> None:
    """Free the blocks of what `localCheckpoint` gave: Spark itself does when its JVM collects the garbage.

    Raises `Py4JError`, when the JVM has ended, too.
    """
    plan: Any = rows._jdf.queryExecution().logical()  # noqa: SLF001
    plan.rdd().unpersist(False)
