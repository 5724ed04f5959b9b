"""What both programs with Spark are around their streams: flags, a session, progress, and an end in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import ottla.spark
from ottla.cli.client_flags import assignments, bootstrap_flag
from ottla.cli.exit_status import FAILED
from ottla.cli.output import say_error
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.errors import OttlaError
from ottla.runtime.interrupts import StopRequest
from ottla.spark.dead_letters import DeadLetters
from ottla.spark.streams.jobs import JobFailed, JobSettings, JobTotals, run_job

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class StreamProgram:
    """A stream of a topic's records, and one beside it that sets aside those with a problem.

    Both keep their progress below `checkpoint`, so that a new run continues where the last one ended, however it ended.
    """

    name: str
    bootstrap: str
    topic: str
    checkpoint: str
    master: str | None
    spark_settings: Mapping[str, str]
    until_end: bool

    def run(self, parsed: Callable[[DataFrame], DataFrame], stream: Callable[[DataFrame], DataStreamWriter]) -> None:
        """Until Ctrl-C or SIGTERM, or to the end of what is there.

        `parsed` adds the column `problem`, null for a good record; `stream` makes a writer of the topic's records, good
        and bad.  Raises `JobFailed`.
        """
        with JobProgress() as progress:
            progress.say("Spark starts")
            spark = ottla.spark.session(self.name, master=self.master, **self.spark_settings)
            try:
                # Not before: Spark has signal handlers of its own.
                with StopRequest() as stop:
                    setting_aside = self._set_aside(parsed(self._records(spark)))
                    progress.say(f"reading {self.topic}")

                    def look(totals: JobTotals) -> None:
                        progress.show(_line(totals))
                        if setting_aside.exception() is not None:
                            raise JobFailed(f"records with a problem are not set aside: {setting_aside.exception()}")
                        if stop.is_made():
                            raise KeyboardInterrupt  # the batch that runs is given up, and runs again the next time

                    totals = run_job(
                        spark,
                        lambda spark, job: stream(self._records(spark)),
                        JobSettings(self.bootstrap, f"{self.checkpoint}/stream"),
                        self._trigger,
                        look,
                    )
                    if self.until_end and not stop.is_made():
                        setting_aside.awaitTermination()
                    setting_aside.stop()
                    progress.say(_line(totals))
            finally:
                spark.stop()

    @property
    def _trigger(self) -> dict[str, Any]:
        """Empty: a batch as soon as there is data."""
        return {"availableNow": True} if self.until_end else {}

    def _records(self, spark: SparkSession) -> DataFrame:
        return (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )

    def _set_aside(self, parsed: DataFrame) -> StreamingQuery:
        """A stream of its own: the other one has operators with state, which get only what they are to count."""
        dead_letters = DeadLetters(self.bootstrap, error="problem", stage="READ", keeps_batch=False)
        writer = parsed.writeStream.foreachBatch(dead_letters.each_batch(lambda good, batch_id: None))
        writer = writer.option("checkpointLocation", f"{self.checkpoint}/set-aside")
        return writer.trigger(**(self._trigger or {"processingTime": "10 seconds"})).start()


def stream_flags(topic: str) -> Callable[[F], F]:
    """The flags of a `StreamProgram`, which `program_of` takes; `topic` is the default."""
    flags = [
        bootstrap_flag,
        click.option("--topic", default=topic, show_default=True),
        click.option("--checkpoint", required=True, metavar="URL", help="Where the streams keep progress and state."),
        click.option("--master", help="Where Spark runs.  [default: this machine, or where spark-submit says]"),
        click.option("--spark", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option("--until-end", is_flag=True, help="End when everything is read.  [default: stay up]"),
    ]

    def add(function: F) -> F:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return add


def program_of(name: str, flags: Mapping[str, Any]) -> StreamProgram:
    return StreamProgram(
        name,
        flags["bootstrap"],
        flags["topic"],
        flags["checkpoint"],
        flags["master"],
        assignments(flags["spark"], "--spark"),
        flags["until_end"],
    )


def run_command(program: click.Group) -> None:
    """Errors are a line and a hint, not a trace."""
    try:
        program()
    except OttlaError as error:
        say_error(str(error), error.hint)
        sys.exit(FAILED)
    except PySparkException as error:  # an interval that is none, for example
        say_error(str(error))
        sys.exit(FAILED)


def _line(totals: JobTotals) -> str:
    line = f"{totals.rows:,} records in {totals.batches:,} batches, {totals.late_rows:,} too late"
    return line if totals.watermark is None else f"{line}; complete until {totals.watermark}"
