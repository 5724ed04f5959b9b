"""`ottla cluster plan`: the moves that would spread replicas evenly."""

from __future__ import annotations

import click

from ottla.cli.cluster.connection import cluster_flag, connect
from ottla.cli.cluster.moves import plan_json, plan_text, take_inventory
from ottla.cli.output import say


@click.command(name="plan")
@cluster_flag
@click.option(
    "--drain",
    "drained",
    type=int,
    multiple=True,
    metavar="ID",
    help="A broker that is to have nothing; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="As kafka-reassign-partitions takes it.")
def command(bootstrap: str | None, drained: tuple[int, ...], as_json: bool) -> None:
    """Show the moves that would spread replicas evenly over the live brokers and their racks.

    Nothing is changed.  BYTES are those that would be copied.
    """
    from ottla.cli.cluster.replica_plan import planned

    with connect(bootstrap) as cluster:
        found = take_inventory(cluster)
    moves = planned(found.replicas, found.racks, found.sizes_bytes, drained=drained)
    say(*([plan_json(moves)] if as_json else plan_text(moves)))
