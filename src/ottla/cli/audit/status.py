"""`ottla audit status`: what each tier has counted, and until when topics are complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import click

from ottla.cli.audit.flags import audit_topic_flag, rules_flags, rules_of
from ottla.cli.client_flags import bootstrap_flag, open_cluster
from ottla.cli.exit_status import FAILED
from ottla.cli.moments import moment_ms
from ottla.cli.output import say, table
from ottla.cli.pipeline.job_settings import config_flag, json_flag

if TYPE_CHECKING:
    from ottla.audit.comparison import TierLine
    from ottla.audit.completeness import Completeness, CompletenessRules
    from ottla.audit.snapshot import AuditSnapshot

_HEAD = ("TOPIC", "WINDOW", "TIER", "RECORDS", "MISSING", "SURPLUS", "LATE", "LATE-BY-S", "COMPLETE")


@click.command(name="status")
@config_flag("audit", "status")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_flag
@rules_flags
@click.option("--since", metavar="TIME", help="Only windows from this time on: 2026-03-01T12:00, UTC.")
@audit_topic_flag
@json_flag
def command(
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
    as_json: bool,
) -> int:
    """Show what each tier has counted, and until when topics are complete.

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
    say(*(_objects(lines, states) if as_json else _texts(lines, states)))
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
    found: list[dict[str, object]] = [
        {
            "topic": line.topic,
            "window_start_ms": line.window.start_ms,
            "window_ms": line.window.size_ms,
            "tier": line.tier,
            "records": line.records,
            "expected_records": line.expected_records,
            "missing_records": line.missing_records,
            "surplus_records": line.surplus_records,
            "late_records": line.late_records,
            "late_ms": line.late_ms,
            "completeness": line.completeness,
        }
        for line in lines
    ]
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
    return [json.dumps(each) for each in found]


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
    told = [f"{state}{_silent(state)}" for state in states]
    return [*([*table(_HEAD, rows), ""] if rows else []), *told]


def _silent(state: Completeness) -> str:
    if not state.silent:
        return ""
    tiers = ", ".join(sorted({each.key.tier for each in state.silent}))
    return (
        f"; {len(state.silent)} of its counters fell silent without an end ({tiers}): their last counts may be missing"
    )
