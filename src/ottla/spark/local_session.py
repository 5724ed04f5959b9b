"""A Spark session with the data source registered: quiet, and on loopback only when it runs on this machine."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ottla.model.errors import ConfigError
from ottla.spark.java_install import ensure_java
from ottla.spark.jvm import default_session, start_jvm
from ottla.spark.registration import register_source
from ottla.spark.worker_python import is_local, quick_python

APP_NAME_DEFAULT: Final = "ottla"
# What Spark calls an application that has no name.
_NAMELESS: Final = "pyspark-shell"

# Defaults: what `settings`, spark-submit and spark-defaults.conf say wins.
EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A Python process imports pyarrow and the source before it connects: on a busy machine Spark's 15 s are too few.
    "spark.python.authenticate.socketTimeout": "120s",
    # Spark's own, and the names and the text of private keys: plans, and so the web interface, show options.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl[.]jaas|ssl[.](keystore[.])?key|private key",
}
ON_THIS_MACHINE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One machine: the default of 200 would mean 200 tiny tasks after each shuffle.
    "spark.sql.shuffle.partitions": "4",
    # Shortens a micro-batch of Python tasks from about 200 to 160 ms, and needs no port.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "ottla.spark.worker_daemon",
}


# `Service 'SparkUI' failed after 16 retries (starting from 4040)!`, or `(on a random free port)!`.
_NOT_BOUND: Final = re.compile(
    r"java\.net\.BindException: (?:bind\(\.\.\) failed with error\(-?\d+\): )?([^\n]*?): "
    r"Service '?([\w.]+)'? failed after \d+ retries \((?:starting from (\d+)|on a random free port)\)"
)
# "Can't" on macOS.
_NO_SUCH_ADDRESS: Final = re.compile(r"Can(?:not|'t) assign requested address")
_IN_USE: Final = "Address already in use"
_PORT_SETTINGS: Final = {
    "sparkDriver": "spark.driver.port",
    "SparkUI": "spark.ui.port",
    "org.apache.spark.network.netty.NettyBlockTransferService": "spark.blockManager.port",
}
_LOGGERS_OF_ERRORS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def start_session(app_name: str | None, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """A session with the source `ottla`; `settings` are Spark's own.

    `app_name` and `master` None: those of spark-submit or spark-defaults.conf, else "ottla" and `local[*]`.
    Uses a Java from PyPI where none is installed.  A running session is reused, as in Spark.
    Raises `ottla.spark.java_install.NoJava`, and `ConfigError` for a port or an address that it cannot listen at.
    """
    # The active one is the calling thread's alone: in another thread Spark would give the one that runs other settings.
    running = SparkSession.getActiveSession() or default_session()
    spark = _start(app_name, master, settings) if running is None else _with(running, settings)
    register_source(spark)
    return spark


def _with(running: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate() if settings else running


def _start(app_name: str | None, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    given = dict(settings)
    if app_name is not None:
        given["spark.app.name"] = app_name
    if master is not None:
        given["spark.master"] = master
    _start_java(given)
    # Now it has what spark-submit and spark-defaults.conf say.
    conf = SparkConf().setAll(list(given.items()))
    if conf.get("spark.app.name", _NAMELESS) == _NAMELESS:
        conf.setAppName(APP_NAME_DEFAULT)
    conf.setIfMissing("spark.master", "local[*]")
    defaults = EVERYWHERE | (ON_THIS_MACHINE if is_local(conf.get("spark.master") or "") else {})
    for name, value in defaults.items():
        conf.setIfMissing(name, value)
    # They log what is raised as well, with the traces of Java, on standard error.
    for logger in _LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    _leave_no_empty_warehouse(conf.get("spark.sql.warehouse.dir", "spark-warehouse") or "")
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        refused = address_refused(str(error))
        if refused is None:
            raise
        raise refused from None


def address_refused(message: str) -> ConfigError | None:
    """The error for a message of Spark that it cannot listen; None for another one."""
    found = _NOT_BOUND.search(message)
    if found is None:
        return None
    reason, service, port = found.groups()
    setting = _PORT_SETTINGS.get(service, f"the port of {service}")
    if port is None or _NO_SUCH_ADDRESS.search(reason):
        return ConfigError(
            f"Spark cannot listen at its address: {reason}",
            hint="set spark.driver.bindAddress to an address of this machine, and spark.driver.host to one that the "
            "workers reach",
        )
    another = "another program listens there: " if _IN_USE in reason else ""
    return ConfigError(
        f"Spark cannot listen on port {port} ({setting}): {reason}",
        hint=f"{another}set {setting} to another port, or leave it out for a free one",
    )


def _start_java(given: Mapping[str, str]) -> None:
    """Start the JVM if there is none; what only its start can set is in `given`."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
        ensure_java()
        if not os.environ.get("PYSPARK_PYTHON") and is_local(given.get("spark.master", "local")):
            os.environ["PYSPARK_PYTHON"] = quick_python()
    # Settings of the driver's Java; a user's own come after them and win.
    launch = {
        "spark.driver.defaultJavaOptions": _log_option(),
        # Spark takes this for a shell and switches it on.
        "spark.ui.showConsoleProgress": "false",
        **given,
    }
    start_jvm(launch)


def _log_option() -> str:
    return f"-Dlog4j2.configurationFile=file:{files('ottla.spark').joinpath('log4j2.properties')}"


def _leave_no_empty_warehouse(directory: str) -> None:
    """Spark makes this directory for tables even when there are none."""
    path = directory.removeprefix("file:")
    if os.path.exists(path):
        return

    def remove() -> None:
        with contextlib.suppress(OSError):  # not empty, or never made
            os.rmdir(path)

    atexit.register(remove)
