"""`ottla transaction`: transactional ids and their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import DURATION, bootstrap_flag, duration_ms, flags, open_cluster, output_flag
from ottla.cli.output import data_lines, say, table
from ottla.cli.verb_group import VerbGroup
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MINUTE_MS
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from ottla.client.admin.transactions import OpenTransaction, TransactionAdmin
    from ottla.client.wire.cluster import Cluster

_CLIENT_ID: Final = "ottla-transaction"


@click.group(name="transaction", cls=VerbGroup)
def command() -> None:
    """List and describe transactions; find and end those that hang."""


@command.command(name="list")
@bootstrap_flag
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state: Ongoing, Empty, ...")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, metavar="ID", help="Only of this producer.")
@click.option("--open-for", metavar=DURATION, help="Only those open for longer.")
@click.option("--open-for-ms", "running_ms", type=int, metavar="MS", hidden=True)
@click.option("--pattern", metavar="REGEX", help="Only ids that this regular expression (RE2) matches.")
@output_flag("One object for each transactional id.")
def list_transactions(
    bootstrap: str,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_for: str | None,
    running_ms: int | None,
    pattern: str | None,
    as_data: bool,
) -> None:
    """Show the transactional ids of all brokers."""
    if open_for is not None:
        running_ms = duration_ms(open_for, "--open-for")
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        found = _admin(cluster).list_transactions(states, producer_ids, running_ms, pattern)
    if as_data:
        for each in found:
            say(*data_lines(each._asdict()))
        return
    rows = [(each.transactional_id, str(each.producer_id), each.state, str(each.coordinator)) for each in found]
    say(*table(("TRANSACTIONAL-ID", "PRODUCER", "STATE", "COORDINATOR"), rows))


@command.command()
@bootstrap_flag
@click.argument("transactional_id", metavar="ID")
@output_flag()
def describe(bootstrap: str, transactional_id: str, as_data: bool) -> None:
    """Show one transactional id: its producer, its state, the partitions of its open transaction.

    \b
    ottla transaction describe payments-0
    """
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        found = _admin(cluster).describe(transactional_id)
    partitions = [str(partition) for partition in found.partitions]
    if as_data:
        say(*data_lines({**found._asdict(), "partitions": partitions}))
        return
    open_for = "no transaction is open"
    if found.is_open:
        open_for = f"open for {max(SystemClock().now_ms() - found.started_ms, 0)} ms"
    say(f"{transactional_id}: {found.state}, {open_for}")
    say(f"  coordinator {found.coordinator}, producer {found.producer_id}, epoch {found.producer_epoch}")
    say(f"  time-out {found.timeout_ms} ms")
    for partition in partitions:
        say(f"  {partition}")


_max_timeout_flag = flags(
    click.option(
        "--max-timeout",
        metavar=DURATION,
        default="15m",
        show_default=True,
        help="transaction.max.timeout.ms of the brokers: a younger transaction may still end.",
    ),
    click.option("--max-timeout-minutes", type=click.IntRange(min=0), metavar="N", hidden=True),
)


@command.command(name="find-hanging")
@bootstrap_flag
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only in this topic.  [default: all topics]")
@_max_timeout_flag
@output_flag("One object for each of them.")
def find_hanging(
    bootstrap: str, topics: tuple[str, ...], max_timeout: str, max_timeout_minutes: int | None, as_data: bool
) -> None:
    """Show open transactions that no coordinator will end.

    read_committed consumers do not read past them.
    """
    timeout_ms = _timeout_ms(max_timeout, max_timeout_minutes)
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        found = _hanging(cluster, topics, timeout_ms)
    if as_data:
        for each in found:
            say(*data_lines({**each._asdict(), "partition": str(each.partition)}))
        return
    rows = [
        (str(each.partition), str(each.producer_id), str(each.producer_epoch), str(each.start_offset)) for each in found
    ]
    say(*table(("PARTITION", "PRODUCER", "EPOCH", "START-OFFSET"), rows))


@command.command()
@bootstrap_flag
@click.option("--topic", required=True, metavar="TOPIC")
@click.option("--partition", type=int, required=True, metavar="N")
@click.option("--start-offset", type=int, required=True, metavar="OFFSET", help="As find-hanging shows it.")
@_max_timeout_flag
def abort(
    bootstrap: str, topic: str, partition: int, start_offset: int, max_timeout: str, max_timeout_minutes: int | None
) -> None:
    """End a transaction that hangs; one that a coordinator has is refused.

    \b
    ottla transaction abort --topic clicks --partition 0 --start-offset 1742
    """
    timeout_ms = _timeout_ms(max_timeout, max_timeout_minutes)
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        where = TopicPartition(topic, partition)
        found = [
            each
            for each in _hanging(cluster, (topic,), timeout_ms)
            if each.partition == where and each.start_offset == start_offset
        ]
        if not found:
            raise OttlaError(
                f"no transaction that starts at offset {start_offset} hangs in {where}",
                hint="`ottla transaction find-hanging` shows those that do",
            )
        for each in found:
            _admin(cluster).abort(each)
    say(f"aborted the transaction of producer {found[0].producer_id} in {where}")


def _timeout_ms(text: str, minutes: int | None) -> int:
    return duration_ms(text, "--max-timeout") if minutes is None else minutes * MINUTE_MS


def _hanging(cluster: Cluster, topics: tuple[str, ...], max_timeout_ms: int) -> list[OpenTransaction]:
    names = topics or tuple(info.name for info in cluster.refresh(None))
    partitions = [TopicPartition(name, index) for name in names for index in cluster.partitions(name)]
    open_since_ms = SystemClock().now_ms() - max_timeout_ms
    return _admin(cluster).hanging(partitions, open_since_ms)


def _admin(cluster: Cluster) -> TransactionAdmin:
    from ottla.client.admin.transactions import TransactionAdmin

    return TransactionAdmin(cluster)
