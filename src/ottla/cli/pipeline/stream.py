"""`ottla stream`: runs a stream of Spark that is a function of a Python file."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ottla.cli.client_flags import assignments, bootstrap_flag, duration_ms, output_flag, source_options
from ottla.cli.output import data_lines, say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import KEY_VALUE, config_flag, every_flag, master_flag, spark_flag
from ottla.cli.verb_group import VerbGroup
from ottla.model.counted import counted
from ottla.runtime.installed import SPARK, require_modules

if TYPE_CHECKING:
    from ottla.spark.streams.jobs import JobTotals


@click.group(name="stream", cls=VerbGroup)
def command() -> None:
    """Run streams of events on Spark: windows, sessions, joins (see ottla.spark.streams)."""


@command.command()
@config_flag("stream", "run")
@click.argument("job", metavar="FILE.py:FUNCTION")
@bootstrap_flag
@click.option("--checkpoint", required=True, metavar="URL", help="Where the query keeps its progress and state.")
@click.option("--available-now", is_flag=True, help="Read what is there now, then end.  [default: run until stopped]")
@every_flag("Begin a batch so often: 30s, 5m.  [default: when there is data]")
@click.option("--option", "options", multiple=True, metavar=KEY_VALUE, help="For the function; may be repeated.")
@spark_flag
@master_flag
@output_flag()
def run(
    job: str,
    bootstrap: str,
    checkpoint: str,
    available_now: bool,
    every: str | None,
    options: tuple[str, ...],
    settings: tuple[str, ...],
    master: str | None,
    as_data: bool,
) -> None:
    """Run a stream until Ctrl-C, or with --available-now to the end of what is there.

    FUNCTION(spark, job) returns a DataStreamWriter (df.writeStream...) that is not started.  It finds the flags in
    job.connection (options of sources and sinks), job.bootstrap, job.checkpoint and job.options.  A new run continues
    from the checkpoint.

    \b
    ottla stream run views.py:top_pages --checkpoint /data/checkpoints/top-pages --option pages=3
    """
    if available_now and every is not None:
        raise click.UsageError("--available-now and --every exclude each other.")
    connection = source_options({"kafka.bootstrap.servers": bootstrap})
    given, spark_settings = assignments(options, "--option"), assignments(settings, "--spark")
    trigger: dict[str, object] = {"availableNow": True} if available_now else {}
    if every is not None:
        trigger = {"processingTime": f"{duration_ms(every, '--every')} milliseconds"}
    require_modules("a stream", SPARK, "spark")
    import ottla.spark
    from ottla.spark.streams.jobs import JobSettings, load_job, run_job

    function = load_job(job)
    with JobProgress() as progress:
        progress.show("Spark starts")
        spark = ottla.spark.session(f"ottla stream {job}", master=master, **spark_settings)
        try:
            totals = run_job(
                spark,
                function,
                JobSettings(bootstrap, checkpoint, given, connection),
                trigger,
                lambda totals: progress.show(_line(totals)),
            )
        finally:
            spark.stop()
    say(*(data_lines(asdict(totals)) if as_data else [_line(totals)]))


def _line(totals: JobTotals) -> str:
    line = f"{counted(totals.batches, 'batch', 'batches')}, {counted(totals.rows, 'row')}"
    if totals.late_rows:
        line += f", {totals.late_rows} dropped as late"
    if totals.watermark is not None:
        line += f", watermark {totals.watermark}"
    if totals.state_rows:
        line += f", {counted(totals.state_rows, 'row')} of state"
    return line
