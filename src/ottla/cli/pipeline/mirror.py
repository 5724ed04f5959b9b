"""`ottla mirror`: one cluster's topics and groups, copied to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import check_reachable, flags, given_security, output_flag
from ottla.cli.exit_status import FAILED
from ottla.cli.output import data_lines, say, table
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import config_flag
from ottla.cli.verb_group import VerbGroup
from ottla.model.counted import counted

if TYPE_CHECKING:
    from ottla.client.wire.security.settings import ClientSecurity
    from ottla.mirror import Mirror, MirrorOptions, MirrorReport, TopicPlan

_MILLION: Final = 1_000_000


@click.group(name="mirror", cls=VerbGroup)
def command() -> None:
    """Copy topics from one cluster to another: with their partitions, settings, order and groups.

    \b
    ottla mirror plan --source live:9092 --target offline:9092 --topics 'page-.*'
    ottla mirror run  --source live:9092 --target offline:9092 --topics 'page-.*'
    """


class _Clusters(NamedTuple):
    """The flags of `_cluster_flags`."""

    source: str
    target: str
    source_config: Path | None
    target_config: Path | None

    def security(self) -> tuple[ClientSecurity, ClientSecurity]:
        """Of the source and of the target.  Raises ConfigError."""
        return _security("--source-config", self.source_config), _security("--target-config", self.target_config)


_FILE: Final = click.Path(path_type=Path)
# Each side has its own security: neither cluster gets a password of the other.
_cluster_flags: Final = flags(
    click.option("--source", required=True, metavar="HOST:PORT,...", help="Brokers of the cluster to copy."),
    click.option("--target", required=True, metavar="HOST:PORT,...", help="Brokers that get the copies."),
    click.option(
        "--source-config", type=_FILE, metavar="FILE", help="TLS and login at the source: a client.properties."
    ),
    click.option(
        "--target-config", type=_FILE, metavar="FILE", help="TLS and login at the target: a client.properties."
    ),
)


def _security(flag: str, path: Path | None) -> ClientSecurity:
    from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties
    from ottla.client.wire.security.settings import PLAINTEXT
    from ottla.model.errors import ConfigError

    if path is not None:
        return security_of_properties(read_client_properties(path))
    if given_security() != PLAINTEXT:
        raise ConfigError(
            f"OTTLA_... variables set the security of connections, and a mirror has two clusters: {flag} is missing",
            hint=f"name a client.properties with {flag}; one with security.protocol=PLAINTEXT for a cluster without",
        )
    return PLAINTEXT


_what_flags: Final = flags(
    click.option(
        "--topics", multiple=True, metavar="REGEX", help="Topics, as patterns; may be repeated.  [default: all]"
    ),
    click.option("--exclude-topics", multiple=True, metavar="REGEX", help="But not these."),
    click.option("--groups", multiple=True, metavar="REGEX", help="Groups, as patterns.  [default: all]"),
    click.option("--exclude-groups", multiple=True, metavar="REGEX", help="But not these."),
    click.option("--no-groups", is_flag=True, help="Translate no group's offsets."),
    click.option("--no-configs", is_flag=True, help="Do not keep topics' settings in step."),
    click.option("--exclude-configs", multiple=True, metavar="REGEX", help="Settings that the target has for itself."),
    click.option(
        "--start",
        type=click.Choice(["earliest", "latest"]),
        default="earliest",
        show_default=True,
        help="Where a topic begins that was not copied before.",
    ),
    click.option(
        "--replication-factor", type=int, metavar="N", default=-1, help="Of topics that are made.  [default: target's]"
    ),
    click.option(
        "--existing-topics",
        type=click.Choice(["fail", "append"]),
        default="fail",
        show_default=True,
        help="A topic of the target that has other records.",
    ),
    click.option(
        "--recreated-topics",
        type=click.Choice(["append", "fail"]),
        default="append",
        show_default=True,
        help="A topic of the source that was deleted and recreated, or that lost records.",
    ),
    click.option(
        "--foreign-records",
        type=click.Choice(["fail", "accept"]),
        default="fail",
        show_default=True,
        help="Another producer writes to a copy.",
    ),
)


@command.command()
@config_flag("mirror", "plan")
@_cluster_flags
@_what_flags
@output_flag()
def plan(
    source: str,
    target: str,
    source_config: Path | None,
    target_config: Path | None,
    as_data: bool,
    **what: object,
) -> int:
    """Show what `run` would make and copy.  Nothing is changed.

    \b
    ottla mirror plan --source live:9092 --target offline:9092 --topics 'page-.*'
    """
    clusters = _Clusters(source, target, source_config, target_config)
    found = _mirror(clusters, what, lambda line: None).plan()
    if as_data:
        rows = [{**_topic_object(each), "problem": found.problems.get(each.topic)} for each in found.topics]
        ids = {"source_cluster_id": found.source_cluster_id, "target_cluster_id": found.target_cluster_id}
        say(*data_lines({**ids, "topics": rows}))
    else:
        head = ["TOPIC", "DECISION", "PARTITIONS", "SETTINGS", "REASON"]
        say(*table(head, [_topic_row(each, found.problems.get(each.topic)) for each in found.topics]))
    return FAILED if found.problems else 0


@command.command()
@config_flag("mirror", "run")
@_cluster_flags
@_what_flags
@click.option("--once", is_flag=True, help="Copy what the source has now, and end.  [default: until Ctrl-C]")
@click.option("--rate", "rate_bytes_s", type=click.IntRange(min=1), metavar="BYTES", help="At most, in a second.")
@click.option("--refresh-interval-ms", type=click.IntRange(min=1), default=10_000, show_default=True, metavar="MS")
@click.option("--groups-interval-ms", type=click.IntRange(min=1), default=10_000, show_default=True, metavar="MS")
@click.option("--progress-interval-ms", type=click.IntRange(min=1), default=1_000, show_default=True, metavar="MS")
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="A killed mirror is replaced after this.",
)
@click.option(
    "--transactional",
    "is_transactional",
    is_flag=True,
    help="Write records and progress in transactions: exact for readers of committed records, see the guide.",
)
@click.option("--audit", "tells_audit", is_flag=True, help="Report the copied counts to the audit of both clusters.")
@click.option("--audit-interval-ms", type=click.IntRange(min=1), default=60_000, show_default=True, metavar="MS")
@output_flag()
def run(
    source: str,
    target: str,
    source_config: Path | None,
    target_config: Path | None,
    once: bool,
    rate_bytes_s: int | None,
    refresh_interval_ms: int,
    groups_interval_ms: int,
    progress_interval_ms: int,
    session_timeout_ms: int,
    is_transactional: bool,
    tells_audit: bool,
    audit_interval_ms: int,
    as_data: bool,
    **what: object,
) -> int:
    """Copy, until Ctrl-C.  One mirror of a source works at a time; others wait to take over.

    \b
    ottla mirror run --source live:9092 --target offline:9092 --topics 'page-.*'
    """
    how = {
        "rate_bytes_s": rate_bytes_s,
        "refresh_interval_ms": refresh_interval_ms,
        "groups_interval_ms": groups_interval_ms,
        "progress_interval_ms": progress_interval_ms,
        "session_timeout_ms": session_timeout_ms,
        "is_transactional": is_transactional,
        "tells_audit": tells_audit,
        "audit_interval_ms": audit_interval_ms,
    }
    from ottla.runtime.interrupts import StopRequest

    with JobProgress() as progress, StopRequest() as stop:
        mirror = _mirror(_Clusters(source, target, source_config, target_config), what, progress.say, **how)
        report = mirror.run(
            once=once, should_stop=stop.is_made, on_progress=lambda each: progress.show(_progress_line(each))
        )
    if as_data:
        say(*data_lines(_report_object(report)))
    else:
        say(_report_line(report))
    return FAILED if report.stuck or report.refused_topics else 0


@command.command()
@config_flag("mirror", "status")
@_cluster_flags
@output_flag()
def status(source: str, target: str, source_config: Path | None, target_config: Path | None, as_data: bool) -> None:
    """Show how far each partition is copied, by what the mirror stored last.

    \b
    ottla mirror status --source live:9092 --target offline:9092
    """
    from ottla.mirror import MirrorOptions

    clusters = _Clusters(source, target, source_config, target_config)
    rows = _reachable(clusters, MirrorOptions(), lambda line: None).status()
    if as_data:
        for each in rows:
            say(*data_lines({**asdict(each), "counts": asdict(each.counts)}))
        return
    head = ["TOPIC", "PARTITION", "SOURCE-END", "TARGET-END", "LAG", "RECORDS", "DUPLICATES", "LOST", "PROBLEM"]
    shown = [
        (
            each.topic,
            each.partition,
            each.source_end,
            each.target_end,
            each.lag_offsets,
            each.counts.records,
            each.counts.duplicate_records,
            each.counts.lost_offsets,
            each.problem,
        )
        for each in rows
    ]
    say(*table(head, shown))


def _reachable(clusters: _Clusters, options: MirrorOptions, note: Callable[[str], None]) -> Mirror:
    from ottla.mirror import Mirror

    source, target = clusters.security()
    check_reachable(clusters.source, "ottla-mirror", "--source", source)
    check_reachable(clusters.target, "ottla-mirror", "--target", target)
    return Mirror(clusters.source, clusters.target, options, source_security=source, target_security=target, note=note)


def _mirror(clusters: _Clusters, what: dict[str, object], note: Callable[[str], None], **how: object) -> Mirror:
    from ottla.mirror import MirrorOptions, Names
    from ottla.mirror.options import UNCOPIED_CONFIGS, UNCOPIED_GROUPS

    topics = Names(_texts(what["topics"]) or (".*",), _texts(what["exclude_topics"]))
    groups = Names(_texts(what["groups"]) or (".*",), (*UNCOPIED_GROUPS, *_texts(what["exclude_groups"])))
    configs = Names((".*",), (*UNCOPIED_CONFIGS, *_texts(what["exclude_configs"])))
    options = MirrorOptions(
        topics=topics,
        groups=Names(()) if what["no_groups"] else groups,
        configs=Names(()) if what["no_configs"] else configs,
        start=str(what["start"]),
        replication_factor=int(str(what["replication_factor"])),
        existing_topics=str(what["existing_topics"]),
        recreated_topics=str(what["recreated_topics"]),
        foreign_records=str(what["foreign_records"]),
        **how,  # type: ignore[arg-type]  # the flags have the options' names and types
    )
    return _reachable(clusters, options, note)


def _texts(values: object) -> tuple[str, ...]:
    assert isinstance(values, Iterable)
    return tuple(map(str, values))


def _topic_row(plan: TopicPlan, problem: str | None) -> tuple[object, ...]:
    changed = [f"{name}={value}" for name, value in plan.set_configs.items()]
    changed += [f"{name} unset" for name in plan.unset_configs]
    grows = plan.adds_partitions
    partitions = f"{plan.target_partitions_count} to {plan.partitions_count}" if grows else plan.partitions_count
    return plan.topic, plan.decision.value, partitions, ", ".join(changed), problem or plan.reason


def _topic_object(plan: TopicPlan) -> dict[str, object]:
    return {
        "topic": plan.topic,
        "decision": plan.decision.value,
        "reason": plan.reason,
        "partitions": plan.partitions_count,
        "target_partitions": plan.target_partitions_count,
        "set_configs": dict(plan.set_configs),
        "unset_configs": list(plan.unset_configs),
    }


def _report_object(report: MirrorReport) -> dict[str, object]:
    return {
        "source_cluster_id": report.source_cluster_id,
        "target_cluster_id": report.target_cluster_id,
        **asdict(report.counts),
        "lag_offsets": report.lag_offsets,
        "committed_group_offsets": report.committed_group_offsets,
        "left_alone": dict(report.left_alone),
        "stuck": {f"{each.topic}-{each.partition}": each.problem for each in report.stuck},
    }


def _progress_line(report: MirrorReport) -> str:
    records = counted(report.counts.records, "record", separator=",")
    copied = f"{records}, {report.counts.size_bytes / _MILLION:,.1f} MB copied"
    stuck = f", {counted(len(report.stuck), 'partition')} stuck" if report.stuck else ""
    return f"{copied}, {report.lag_offsets:,} behind{stuck}"


def _report_line(report: MirrorReport) -> str:
    counts = report.counts
    extra = [
        f"{count:,} {what}"
        for count, what in (
            (counts.duplicate_records, "twice on the target"),
            (counts.foreign_records, "written by others"),
            (counts.lost_offsets, "lost by the source before they were copied"),
            (counts.recopied_records, "copied again"),
        )
        if count
    ]
    partitions = counted(len(report.partitions), "partition")
    return f"copied {counted(counts.records, 'record')} of {partitions}" + "".join(f"; {each}" for each in extra)
