"""`ottla audit wait`: returns when a topic is complete."""

from __future__ import annotations

import json

import click

from ottla.cli.audit.flags import audit_topic_flag, rules_flags, rules_of
from ottla.cli.client_flags import bootstrap_flag, open_cluster
from ottla.cli.moments import duration_ms, moment_ms
from ottla.cli.output import say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import config_flag, json_flag


@click.command(name="wait")
@config_flag("audit", "wait")
@click.argument("topic")
@click.option("--until", required=True, metavar="TIME", help="Every window that ends by then: 2026-03-01T12:00, UTC.")
@click.option("--from", "since", metavar="TIME", help="Only windows from this time on.  [default: the first one]")
@bootstrap_flag
@rules_flags
@click.option("--timeout", metavar="TIME", help="Fail after this: 90m, PT2H.  [default: wait for ever]")
@audit_topic_flag
@json_flag
def command(
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
    as_json: bool,
) -> None:
    """Wait until a topic is complete; for batch jobs.

    The exit status is 0 when it is, 1 when --timeout is over before.  An hour that lacks records for good keeps those
    after it from being complete, unless --from begins behind it.  Brokers that are away are waited for.

    \b
    ottla audit wait clicks --until 2026-03-01T12:00 --timeout 2h && spark-submit hourly.py
    """
    from ottla.audit.waiting import wait_until_complete, why_not

    rules = rules_of(tier, window, threshold, delay, silence, trust_silence)
    until_ms = moment_ms(until, "--until")
    from_ms = None if since is None else moment_ms(since, "--from")
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
    say(json.dumps(found) if as_json else text)
