"""`ottla audit ledger`: the ranges that readers could not read, and why."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ottla.cli.client_flags import bootstrap_flag, open_cluster
from ottla.cli.output import say, table
from ottla.cli.pipeline.job_settings import config_flag, json_flag
from ottla.model.own_names import LEDGER_TOPIC


@click.command(name="ledger")
@config_flag("audit", "ledger")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@bootstrap_flag
@click.option(
    "--ledger-topic", default=LEDGER_TOPIC, show_default=True, metavar="TOPIC", help="Where readers write them."
)
@json_flag
def command(topics: tuple[str, ...], bootstrap: str, ledger_topic: str, as_json: bool) -> None:
    """Show the ranges that readers could not read, and why.

    A reader with `onDataLoss=ledger` writes them before it continues.
    """
    from ottla.lost_offsets import UNKNOWN_END, read_lost_offsets
    from ottla.model.identifiers import uuid_to_text
    from ottla.model.windows import time_text

    with open_cluster(bootstrap, "ottla-audit-ledger") as cluster:
        entries = [each for each in read_lost_offsets(cluster, ledger_topic) if not topics or each.lost.topic in topics]
    if as_json:
        for entry in entries:
            fields = asdict(entry.lost) | {"topic_id": uuid_to_text(entry.lost.topic_id)}
            say(json.dumps(fields | {"reader": entry.reader, "seen_ms": entry.seen_ms}))
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
