"""All jobs on Spark, in one session: load, dead letters, top pages, sessions, audit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import ottla.spark
from ottla.audit.results import result_to_json
from ottla.demo.jobs.auditing import audit
from ottla.demo.jobs.loading import drop_one_row, load
from ottla.demo.jobs.setting_aside import set_aside
from ottla.demo.jobs.site import Site
from ottla.demo.jobs.views import run_sessions, run_top_pages
from ottla.demo.lake import EVENTS
from ottla.demo.messages import Audited, Loaded, RunJobs, Running, SetAside, send_message
from ottla.demo.processes.entry import run_task
from ottla.runtime.clock import SystemClock

# Two cores are enough; more would not make the demo faster.
MASTER: Final = "local[2]"
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    # Hours are text, even when they look like a date.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
# A run of a minute does not earn what compiling well and collecting in parallel cost.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark's sockets have names of 43 characters in the directory for temporary files; a whole path may have 104 (macOS).
SOCKET_DIRECTORY_MAX: Final = 104 - 43 - 1

_clock: Final = SystemClock()


def run_jobs(task: RunJobs) -> None:
    _begin("starts")
    _keep_inside(task.scratch)
    spark = ottla.spark.session("a day at a small LinkedIn", master=MASTER, **_settings(task.scratch))
    site = Site(task.bootstrap, Path(task.lake), Path(task.checkpoints))
    began_ms = _begin("loads all topics into the lake")
    loaded = load(spark, site)
    send_message(Loaded(loaded.rows_count, loaded.files_count, _clock.monotonic_ms() - began_ms))
    _begin("sets malformed events aside as dead letters")
    send_message(SetAside(set_aside(spark, site)))
    _begin("finds the top pages of each five minutes")
    run_top_pages(spark, site, task.views_per_batch)
    _begin("finds the members' sessions")
    run_sessions(spark, site)
    if task.drop_one:
        drop_one_row(site.lake / EVENTS)
    _begin("audits every topic and hour")
    found = audit(spark, site, task.day_start_ms)
    now_ms = _clock.now_ms()
    lines = [result_to_json(line, now_ms).decode() for line in found.lines]
    send_message(Audited(lines, found.duplicates, found.complete_hours, _clock.monotonic_ms()))
    spark.stop()


def _begin(stage: str) -> int:
    now_ms = _clock.monotonic_ms()
    send_message(Running(stage, now_ms))
    return now_ms


def _settings(scratch: str) -> dict[str, str]:
    has_room = len(scratch.encode()) <= SOCKET_DIRECTORY_MAX
    return SETTINGS if has_room else {**SETTINGS, "spark.python.unix.domain.socket.enabled": "false"}


def _keep_inside(scratch: str) -> None:
    """Spark and its Java write their temporary files into `scratch`, so that none are left."""
    os.environ["SPARK_LOCAL_DIRS"] = scratch
    java_options = f"{QUICK_JAVA} -Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java_options}".strip()


if __name__ == "__main__":
    run_task(RunJobs, run_jobs)
