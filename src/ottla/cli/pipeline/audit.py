"""`ottla audit`: the counts of all tiers, the hours that are complete, and the ranges that were lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from ottla.cli.client_flags import (
    DURATION,
    RenamedOption,
    assignments,
    bootstrap_flag,
    duration_ms,
    flags,
    moment_ms,
    open_cluster,
    output_flag,
    source_options,
)
from ottla.cli.exit_status import FAILED
from ottla.cli.output import data_lines, say, table
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import KEY_VALUE, config_flag, every_flag, master_flag
from ottla.model.counted import counted
from ottla.model.own_names import AUDIT_RESULTS_TOPIC, AUDIT_TOPIC, LOST_OFFSETS_TOPIC
from ottla.runtime.installed import LAKE, SPARK, require_modules

if TYPE_CHECKING:
    from ottla.audit.comparison import TierLine
    from ottla.audit.completeness import Completeness, CompletenessRules
    from ottla.audit.snapshot import AuditSnapshot
    from ottla.spark.audit import AuditRun

_HEAD: Final = ("TOPIC", "WINDOW", "TIER", "RECORDS", "MISSING", "SURPLUS", "LATE", "LATE-BY-S", "COMPLETE")
audit_topic_flag: Final = click.option(
    "--audit-topic", default=AUDIT_TOPIC, show_default=True, metavar="TOPIC", help="Where the counts are."
)
window_flag: Final = click.option(
    "--window", default="1h", show_default=True, metavar=DURATION, help="The windows' size: 10m, 1h, PT15M."
)


rules_flags: Final = flags(
    click.option("--tier", metavar="TIER", default="lake", show_default=True, help="The tier that must be complete."),
    window_flag,
    click.option(
        "--threshold",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="SHARE",
        default=0.999,
        show_default=True,
        help="A window is complete with this part of what the tiers before have counted.",
    ),
    click.option(
        "--delay", default="30s", show_default=True, metavar=DURATION, help="So long after its end a window is over."
    ),
    click.option(
        "--silence",
        default="5m",
        show_default=True,
        metavar=DURATION,
        help="A producer that was silent for so long is not waited for while others report.",
    ),
    click.option(
        "--trust-silence", is_flag=True, help="Wait for no counter that was silent for so long, brokers' included."
    ),
)


def rules_of(
    tier: str, window: str, threshold: float, delay: str, silence: str, trust_silence: bool
) -> CompletenessRules:
    from ottla.audit.completeness import CompletenessRules

    return CompletenessRules(
        tier,
        duration_ms(window, "--window"),
        threshold,
        duration_ms(delay, "--delay"),
        duration_ms(silence, "--silence"),
        trust_silence,
    )


@click.command(name="status")
@config_flag("audit", "status")
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@bootstrap_flag
@rules_flags
@click.option("--since", metavar="TIME", help="Only windows from this time on: 2026-03-01T12:00, UTC.")
@audit_topic_flag
@output_flag()
def status(
    topics: tuple[str, ...],
    bootstrap: str,
    tier: str,
    window: str,
    threshold: float,
    delay: str,
    silence: str,
    trust_silence: bool,
    since: str | None,
    audit_topic: str,
    as_data: bool,
) -> int:
    """Show what each tier has counted, and until when topics are complete.

    \b
    ottla audit status clicks --since 2026-03-01T12:00

    MISSING and SURPLUS compare a tier with the most that a tier before it has counted.  The exit status is 1 when a
    window that is over lacks more than the threshold allows, or a topic's counts cannot be compared by --window.
    """
    from ottla.audit.comparison import COMPARED_MS, compare
    from ottla.audit.completeness import completeness_of, gone_topic_ids
    from ottla.audit.topic import AuditReader
    from ottla.audit.waiting import lost_texts

    rules = rules_of(tier, window, threshold, delay, silence, trust_silence)
    since_ms = None if since is None else moment_ms(since, "--since")
    with open_cluster(bootstrap, "ottla-audit-status") as cluster:
        snapshot = AuditReader(cluster, audit_topic).update()
        now_ms = cluster.clock.now_ms()
        wanted = topics or tuple(snapshot.topics)
        chosen = _comparable(snapshot, wanted, rules)
        states = [completeness_of(snapshot, topic, rules, now_ms) for topic in chosen]
        lossy = [state.topic for state in states if state.short]
        lost = lost_texts(cluster, lossy) if lossy else {}
    counts = [count for count in snapshot.counts if count.key.topic in chosen]
    gone_ids = frozenset[UUID]().union(*(gone_topic_ids(snapshot, topic) for topic in chosen))
    lines = [
        line
        for line in compare(counts, rules.window_ms, seen_since_ms=now_ms - COMPARED_MS, gone_ids=gone_ids)
        if since_ms is None or line.window.end_ms > since_ms
    ]
    say(*(_objects(lines, states) if as_data else _texts(lines, states)))
    for text in lost.values():
        say(text, err=True)
    is_short = any(line.window.end_ms > (since_ms or line.window.start_ms) for each in states for line in each.short)
    return FAILED if is_short or len(chosen) < len(wanted) else 0


def _comparable(snapshot: AuditSnapshot, topics: tuple[str, ...], rules: CompletenessRules) -> tuple[str, ...]:
    """A topic that cannot be compared is named, and does not keep the others from it."""
    from ottla.audit.comparison import unfit_counts, unfit_text

    unfit = unfit_counts((count for count in snapshot.counts if count.key.topic in topics), rules.window_ms)
    for topic, count in sorted(unfit.items()):
        why = unfit_text(count.key.tier, topic, count.key.window.size_ms, rules.window_ms)
        say(f"{topic} is left out: {why}", err=True)
    return tuple(topic for topic in topics if topic not in unfit)


def _objects(lines: Sequence[TierLine], states: Sequence[Completeness]) -> list[str]:
    found = [line.fields() for line in lines]
    found += [
        {
            "topic": state.topic,
            "tier": state.rules.tier,
            "threshold": state.rules.threshold,
            "complete_until_ms": state.until_ms,
            "told_until_ms": state.reported_until_ms,
            "silent_counters": len(state.silent),
        }
        for state in states
    ]
    return [line for each in found for line in data_lines(each)]


def _texts(lines: Sequence[TierLine], states: Sequence[Completeness]) -> list[str]:
    if not lines and not states:
        return ["no counts yet"]
    rows = [
        (
            line.topic,
            line.window,
            line.tier,
            line.records,
            line.missing_records or None,
            line.surplus_records or None,
            line.late_records or None,
            line.late_ms // 1000 if line.late_records else None,
            # Rounded down: 100 % is everything.
            None if line.completeness is None else f"{int(line.completeness * 10_000) / 100:.2f}%",
        )
        for line in lines
    ]
    topics = [f"{state}{_silent(state)}" for state in states]
    return [*([*table(_HEAD, rows), ""] if rows else []), *topics]


def _silent(state: Completeness) -> str:
    if not state.silent:
        return ""
    tiers = ", ".join(sorted({each.key.tier for each in state.silent}))
    return (
        f"; {len(state.silent)} of its counters fell silent without an end ({tiers}): their last counts may be missing"
    )


@click.command(name="wait")
@config_flag("audit", "wait")
@click.argument("topic", metavar="TOPIC")
@click.option("--until", required=True, metavar="TIME", help="Every window that ends by then: 2026-03-01T12:00, UTC.")
@click.option(
    "--since",
    cls=RenamedOption,
    formerly=("--from",),
    metavar="TIME",
    help="Only windows from this time on.  [default: the first one]",
)
@bootstrap_flag
@rules_flags
@click.option("--timeout", metavar=DURATION, help="Fail after this: 90m, PT2H.  [default: wait for ever]")
@audit_topic_flag
@output_flag()
def wait(
    topic: str,
    until: str,
    since: str | None,
    bootstrap: str,
    tier: str,
    window: str,
    threshold: float,
    delay: str,
    silence: str,
    trust_silence: bool,
    timeout: str | None,
    audit_topic: str,
    as_data: bool,
) -> None:
    """Wait until a topic is complete; for batch jobs.

    The exit status is 0 when it is, 1 when --timeout is over before.  An hour that lacks records for good keeps those
    after it from being complete, unless --since is after it.  Brokers that are away are waited for.

    \b
    ottla audit wait clicks --until 2026-03-01T12:00 --timeout 2h && spark-submit hourly.py
    """
    from ottla.audit.waiting import wait_until_complete, why_not

    rules = rules_of(tier, window, threshold, delay, silence, trust_silence)
    until_ms = moment_ms(until, "--until")
    from_ms = None if since is None else moment_ms(since, "--since")
    timeout_ms = None if timeout is None else duration_ms(timeout, "--timeout")
    with open_cluster(bootstrap, "ottla-audit-wait") as cluster, JobProgress() as progress:
        status = wait_until_complete(
            cluster,
            topic,
            until_ms,
            rules,
            from_ms=from_ms,
            timeout_ms=timeout_ms,
            audit_topic=audit_topic,
            on_status=lambda status: progress.show(why_not(status, until_ms, from_ms)),
            on_trouble=lambda error: progress.show(f"tried again: {error}"),
        )
    found = {"topic": topic, "tier": tier, "complete_until_ms": status.until_ms, "silent_counters": len(status.silent)}
    text = str(status) if from_ms is None else f"{topic} at {tier} is complete from {since} until {until}"
    say(*(data_lines(found) if as_data else [text]))


@click.command(name="lost-offsets")
@config_flag("audit", "lost-offsets", formerly="ledger")
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@bootstrap_flag
@click.option(
    "--lost-offsets-topic",
    "topic",
    cls=RenamedOption,
    formerly=("--ledger-topic",),
    default=LOST_OFFSETS_TOPIC,
    show_default=True,
    metavar="TOPIC",
    help="Where readers write them.",
)
@output_flag()
def lost_offsets(topics: tuple[str, ...], bootstrap: str, topic: str, as_data: bool) -> None:
    """Show the ranges that readers could not read, and why.

    \b
    ottla audit lost-offsets clicks

    A reader with `onDataLoss=record` writes them before it continues.
    """
    from ottla.lost_offsets import UNKNOWN_END, read_lost_offsets
    from ottla.model.identifiers import uuid_to_text
    from ottla.model.windows import time_text

    with open_cluster(bootstrap, "ottla-audit-lost-offsets") as cluster:
        entries = [each for each in read_lost_offsets(cluster, topic) if not topics or each.lost.topic in topics]
    if as_data:
        for entry in entries:
            fields = asdict(entry.lost) | {"topic_id": uuid_to_text(entry.lost.topic_id)}
            say(*data_lines(fields | {"reader": entry.reader, "seen_ms": entry.seen_ms}))
    elif entries:
        head = ("TOPIC", "PARTITION", "FIRST", "END", "OFFSETS", "SEEN", "READER", "REASON")
        rows = [
            (
                each.lost.topic,
                each.lost.partition,
                each.lost.first_offset,
                # Where a deleted topic ended is unknown.
                None if each.lost.end_offset == UNKNOWN_END else each.lost.end_offset,
                None if each.lost.end_offset == UNKNOWN_END else each.lost.end_offset - each.lost.first_offset,
                time_text(each.seen_ms),
                each.reader,
                each.lost.reason,
            )
            for each in entries
        ]
        say(*table(head, rows))
    else:
        say("no range was lost")


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
@every_flag("Again and again, until Ctrl-C: 30s, 5m.  [default: once]")
@master_flag
@output_flag()
def run(
    bootstrap: str,
    target: str | None,
    tables: tuple[str, ...],
    storage: tuple[str, ...],
    window: str,
    audit_topic: str,
    results_topic: str,
    every: str | None,
    master: str | None,
    as_data: bool,
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
                say(*(data_lines(_run_object(found)) if as_data else [_run_line(found)]))
                for topic, why in sorted(found.left_out.items()):
                    progress.say(f"{topic} is left out: {why}")
                if every_ms is None:
                    return FAILED if found.left_out else 0
            time.sleep(every_ms / 1000)


def _run_object(found: AuditRun) -> dict[str, object]:
    return {
        "lines": len(found.lines),
        "changed": len(found.changed),
        "missing_records": sum(line.missing_records for line in found.lines),
        "surplus_records": sum(line.surplus_records for line in found.lines),
        "late_records": sum(line.late_records for line in found.lines),
    }


def _run_line(found: AuditRun) -> str:
    missing = sum(line.missing_records for line in found.lines)
    surplus = sum(line.surplus_records for line in found.lines)
    return (
        f"{counted(len(found.lines), 'line')}, {len(found.changed)} changed; "
        f"{counted(missing, 'record')} missing, {surplus} too many"
    )
