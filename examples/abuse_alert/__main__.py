"""python -m examples.abuse_alert run | alerts"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from ottla.cli.client_flags import bootstrap_flag
from ottla.cli.output import say

from ..stream_program import program_of, run_command, stream_flags
from .alert_topic import alert_writer, ensure_alert_topic, read_alerts
from .rates import Rule, parsed, windows_above

alerts_flag = click.option("--alerts", "alert_topic", default="abuse-alerts", show_default=True, help="Their topic.")


@click.group()
def program() -> None:
    """Alerts about members who do too much in too short a time."""


@program.command()
@stream_flags(topic="member-actions")
@alerts_flag
@click.option("--more-than", "limit", type=click.IntRange(min=0), default=100, show_default=True, help="Actions.")
@click.option("--window", default=Rule(0).window, show_default=True, help="Within so long.")
@click.option("--slide", default=Rule(0).slide, show_default=True, help="A window begins so often.")
@click.option("--delay", default=Rule(0).delay, show_default=True, help="How late actions may be.")
def run(alert_topic: str, limit: int, window: str, slide: str, delay: str, **flags: Any) -> None:
    """Report each member and window with too many actions, until Ctrl-C or SIGTERM."""
    rule = Rule(limit, window, slide, delay)
    stream = program_of("abuse alert", flags)
    ensure_alert_topic(stream.bootstrap, alert_topic)
    write = alert_writer(stream.bootstrap, alert_topic)
    stream.run(parsed, lambda records: windows_above(records, rule).writeStream.foreachBatch(write))


@program.command()
@bootstrap_flag
@alerts_flag
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each alert.")
def alerts(bootstrap: str, alert_topic: str, as_json: bool) -> None:
    """All reported alerts, each once."""
    for alert in read_alerts(bootstrap, alert_topic):
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (alert.start_ms, alert.end_ms))
        text = f"{start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC: {alert.count} actions of {alert.member}"
        say(json.dumps(asdict(alert)) if as_json else text)


if __name__ == "__main__":
    run_command(program)
