"""`ottla audit run`: compares all tiers on Spark, into a table and a topic."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from ottla.cli.audit.flags import audit_topic_flag, window_flag
from ottla.cli.client_flags import assignments, bootstrap_flag, source_options
from ottla.cli.exit_status import FAILED
from ottla.cli.moments import duration_ms
from ottla.cli.output import say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import KEY_VALUE, config_flag, json_flag
from ottla.model.counted import counted
from ottla.model.own_names import AUDIT_RESULTS_TOPIC
from ottla.runtime.installed import LAKE, SPARK, require_modules

if TYPE_CHECKING:
    from ottla.spark.audit import AuditRun


@click.command(name="run")
@config_flag("audit", "run")
@bootstrap_flag
@click.option("--target", metavar="URL", help="The table of results: a path, s3://..., hdfs://...  [default: none]")
@click.option("--table", "tables", multiple=True, metavar="URL", help="A Delta table of `ottla load`; may be repeated.")
@click.option("--storage", multiple=True, metavar=KEY_VALUE, help="A setting of the tables' storage; may be repeated.")
@window_flag
@audit_topic_flag
@click.option(
    "--results-topic", default=AUDIT_RESULTS_TOPIC, show_default=True, metavar="TOPIC", help="Where results go."
)
@click.option("--every", metavar="TIME", help="Again and again, until Ctrl-C: 5m.  [default: once]")
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: as spark-submit says, else local[*]]")
@json_flag
def command(
    bootstrap: str,
    target: str | None,
    tables: tuple[str, ...],
    storage: tuple[str, ...],
    window: str,
    audit_topic: str,
    results_topic: str,
    every: str | None,
    master: str | None,
    as_json: bool,
) -> int:
    """Compare all tiers on Spark, into a table and a topic.

    What loads have committed to each --table is reported first, as tier `lake`.  Only what has changed is written: the
    newest line of a topic, window and tier counts.  With --every a comparison that fails is reported and repeated.  The
    exit status is 1 when a topic's counts cannot be compared by --window.

    \b
    ottla audit run --table /lake/clicks --target /lake/audit --every 5m
    """
    connection = source_options({})
    window_ms = duration_ms(window, "--window")
    every_ms = None if every is None else duration_ms(every, "--every")
    settings = assignments(storage, "--storage")
    if target is not None or tables:
        require_modules("a Delta table", LAKE, "lake")
    require_modules("a comparison", SPARK, "spark")
    import ottla.spark
    from ottla.client.wire.errors import ClientError
    from ottla.spark.audit import LoadedTable, run_audit
    from ottla.spark.errors import LakeError
    from ottla.spark.lake.target import parse_target

    place = None if target is None else parse_target(target, settings)
    loaded = [LoadedTable(parse_target(url, settings)) for url in tables]
    with JobProgress() as progress:
        progress.show("Spark starts")
        spark = ottla.spark.session("ottla audit", master=master)
        while True:
            progress.show("comparing")
            try:
                found = run_audit(
                    spark,
                    bootstrap,
                    place,
                    tables=loaded,
                    window_ms=window_ms,
                    audit_topic=audit_topic,
                    results_topic=results_topic,
                    options=connection,
                )
            except (ClientError, LakeError) as error:
                if every_ms is None:
                    raise
                progress.say(f"not compared, tried again in {every}: {error}")
            else:
                say(_object(found) if as_json else _line(found))
                for topic, why in sorted(found.left_out.items()):
                    progress.say(f"{topic} is left out: {why}")
                if every_ms is None:
                    return FAILED if found.left_out else 0
            time.sleep(every_ms / 1000)


def _object(found: AuditRun) -> str:
    return json.dumps(
        {
            "lines": len(found.lines),
            "changed": len(found.changed),
            "missing_records": sum(line.missing_records for line in found.lines),
            "surplus_records": sum(line.surplus_records for line in found.lines),
            "late_records": sum(line.late_records for line in found.lines),
        }
    )


def _line(found: AuditRun) -> str:
    missing = sum(line.missing_records for line in found.lines)
    surplus = sum(line.surplus_records for line in found.lines)
    return (
        f"{counted(len(found.lines), 'line')}, {len(found.changed)} changed; "
        f"{counted(missing, 'record')} missing, {surplus} too many"
    )
