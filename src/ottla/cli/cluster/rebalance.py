"""`ottla cluster rebalance`: moves replicas so that they are spread evenly."""

from __future__ import annotations

import click

from ottla.cli.cluster.connection import cluster_flag, connect
from ottla.cli.cluster.moves import (
    carry_out,
    end_moves,
    no_wait_flag,
    plan_text,
    require_no_moves,
    take_inventory,
    throttle_flag,
)
from ottla.cli.output import say
from ottla.model.counted import counted


@click.command(name="rebalance")
@cluster_flag
@throttle_flag
@no_wait_flag
@click.option("--cancel", "cancels", is_flag=True, help="End all moves under way, and their throttle, instead.")
def command(bootstrap: str | None, rate_bytes: int | None, returns_at_once: bool, cancels: bool) -> None:
    """Spread replicas evenly over the live brokers and their racks, as `ottla cluster plan` shows.

    Started moves continue when this command is stopped.  Reads and writes continue meanwhile.
    """
    from ottla.cli.cluster.replica_plan import planned

    if cancels and (rate_bytes is not None or returns_at_once):
        raise click.UsageError("--cancel goes without --throttle and --no-wait.")
    with connect(bootstrap) as cluster:
        if cancels:
            say(f"ended {counted(end_moves(cluster), 'move')}.")
            return
        require_no_moves(cluster)
        found = take_inventory(cluster)
        moves = planned(found.replicas, found.racks, found.sizes_bytes)
        say(*plan_text(moves))
        if moves:
            carry_out(cluster, moves, rate_bytes, returns_at_once=returns_at_once)
