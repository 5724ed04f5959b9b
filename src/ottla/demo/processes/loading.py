"""PySpark loads the topics into a lake table by hour, and flags malformed records in a second table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from deltalake import write_deltalake

import ottla.spark
from ottla.demo.lake_table import EVENTS, MALFORMED, lake_files
from ottla.demo.messages import Load, Loaded, Loading, send_message
from ottla.demo.processes.entry import run_task
from ottla.demo.services import TOPICS
from ottla.runtime.clock import SystemClock

# Two cores are enough; more would not make the demo faster.
MASTER: Final = "local[2]"
# Hours are text, even when they look like a date.
SETTINGS: Final = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
# Spark's sockets have names of 43 characters in the directory for temporary files; a whole path may have 104 (macOS).
SOCKET_DIRECTORY_MAX: Final = 104 - 43 - 1
# Every record is in the table of events; a second table lists those that are not JSON, with their offsets.
IS_MALFORMED: Final = "try_parse_json(CAST(value AS STRING)) IS NULL"
MALFORMED_COLUMNS: Final = ("topic", "event_hour", "partition", "offset", "timestamp", "value")


def load(task: Load) -> None:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    send_message(Loading("Spark starts"))
    _keep_inside(task.scratch)
    spark = ottla.spark.session("a day at a small LinkedIn", master=MASTER, **_settings(task.scratch))
    from ottla.spark.lake import load_topic_to_lake

    events = Path(task.lake, EVENTS)
    loading_ms = clock.monotonic_ms()
    send_message(Loading(f"Spark {spark.version} loads"))
    outcome = load_topic_to_lake(spark, task.bootstrap, list(TOPICS), events)
    loaded_ms = clock.monotonic_ms()
    send_message(Loading("Spark searches for malformed records"))
    rows = spark.read.option("basePath", str(events)).parquet(*(str(file.path) for file in lake_files(events)))
    flagged = rows.where(IS_MALFORMED).select(*MALFORMED_COLUMNS).toArrow()
    write_deltalake(str(Path(task.lake, MALFORMED)), flagged)
    send_message(
        Loaded(
            rows_count=outcome.rows_count,
            files_count=outcome.files_count,
            malformed_count=flagged.num_rows,
            session_ms=loading_ms - began_ms,
            took_ms=loaded_ms - loading_ms,
            spark_version=spark.version,
        )
    )
    spark.stop()


def _settings(scratch: str) -> dict[str, str]:
    has_room = len(scratch.encode()) <= SOCKET_DIRECTORY_MAX
    return SETTINGS if has_room else {**SETTINGS, "spark.python.unix.domain.socket.enabled": "false"}


def _keep_inside(scratch: str) -> None:
    """Spark and its Java write their temporary files into `scratch`, so that none are left."""
    os.environ["SPARK_LOCAL_DIRS"] = scratch
    java_options = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java_options}".strip()


if __name__ == "__main__":
    run_task(Load, load)
