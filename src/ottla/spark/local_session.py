"""A Spark session on this machine: quiet, on loopback only, with the data source registered."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from pyspark.sql import SparkSession

from ottla.spark.java import ensure_java
from ottla.spark.registration import register_source

LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # One machine: the default of 200 would mean 200 tiny tasks after each shuffle.
    "spark.sql.shuffle.partitions": "4",
    # Shortens a micro-batch of Python tasks from about 200 to 160 ms, and needs no port.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A Python process imports pyarrow and the source before it connects: on a busy machine Spark's 15 s are too few.
    "spark.python.authenticate.socketTimeout": "120s",
}


def start_session(app_name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A session with the source `ottla`; `settings` are Spark's own and win over those above.

    Uses a Java from PyPI where none is installed.  A running session is reused, as in Spark.
    Raises `ottla.spark.java.NoJava`.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
        ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**LOCAL_SETTINGS, **_log_settings(), **_directories(), **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register_source(spark)
    return spark


def _log_settings() -> dict[str, str]:
    configuration = files("ottla.spark").joinpath("log4j2.properties")
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{configuration}"}


def _directories() -> dict[str, str]:
    """Spark would create its warehouse in the working directory."""
    return {"spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), f"ottla-warehouse-{os.getpid()}")}
