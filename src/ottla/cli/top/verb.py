"""`ottla top`: the rates of topics and groups, again and again."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import DURATION, bootstrap_flag, duration_ms, open_cluster, output_flag
from ottla.cli.output import data_lines, say
from ottla.cli.top.rates import Look, rates_between, rates_object, rates_text

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster

_CLIENT_ID: Final = "ottla-top"
_EVERY_MS_MIN: Final = 100
_HOME_AND_ERASE: Final = "\x1b[H\x1b[2J"
# Of a screen: the line of the cluster, two heads, two lines of what is left out, and the empty ones.
_OTHER_LINES: Final = 8
_ROWS_MIN: Final = 3
_ROWS_OF_A_PIPE: Final = 50


@click.command(name="top")
@bootstrap_flag
@click.option(
    "--every", default="2s", show_default=True, metavar=DURATION, help="From one look at the offsets to the next."
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Show so many, then end.  [default: until Ctrl-C]"
)
@output_flag("One object for each look.")
def command(bootstrap: str, every: str, count: int | None, as_data: bool) -> None:
    """Show how many records a second topics get and groups of the brokers read, and how far these lag.

    From offsets that are looked up again and again: any Kafka cluster has them, and nothing must be set up.  A group's
    rate is that of its commits.
    """
    every_ms = duration_ms(every, "--every")
    if every_ms < _EVERY_MS_MIN:
        raise click.UsageError(f"--every is at least {_EVERY_MS_MIN}ms, not {every}.")
    is_screen = not as_data and sys.stdout.isatty()
    with contextlib.suppress(KeyboardInterrupt), open_cluster(bootstrap, _CLIENT_ID) as cluster:
        before = _look(cluster)
        left = count
        while left is None or left > 0:
            time.sleep(every_ms / 1_000)
            after = _look(cluster)
            rates = rates_between(before, after)
            if is_screen:
                sys.stdout.write(_HOME_AND_ERASE)
                say(f"{bootstrap}, every {every}; Ctrl-C ends it", "", *rates_text(rates, _rows_of_screen()))
            elif as_data:
                say(*data_lines(rates_object(rates, after)))
            else:
                say(*rates_text(rates, _ROWS_OF_A_PIPE), "")
            sys.stdout.flush()
            before, left = after, None if left is None else left - 1


def _rows_of_screen() -> int:
    """The two tables share it."""
    return max(_ROWS_MIN, (shutil.get_terminal_size().lines - _OTHER_LINES) // 2)


def _look(cluster: Cluster) -> Look:
    """A partition without a leader, and a group that is deleted meanwhile, is left out."""
    from ottla.client.admin.admin import Admin
    from ottla.client.fetching.offsets import LATEST, OffsetAnswer, try_list_offsets
    from ottla.client.groups.groups import GroupAdmin
    from ottla.client.wire.errors import ClientError
    from ottla.model.identifiers import TopicPartition

    partitions = [
        TopicPartition(topic.name, number)
        for topic in Admin(cluster).list_topics()
        if not topic.is_internal
        for number in topic.partitions
    ]
    groups = GroupAdmin(cluster)
    committed = {}
    for each in groups.listing((), ()).groups:
        with contextlib.suppress(ClientError):
            offsets = groups.committed(each.group_id)
            committed[each.group_id] = {partition: at.offset for partition, at in offsets.items()}
    answers = try_list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    ends = {partition: answer.offset for partition, answer in answers.items() if isinstance(answer, OffsetAnswer)}
    return Look(cluster.clock.monotonic_ms(), ends, committed)
