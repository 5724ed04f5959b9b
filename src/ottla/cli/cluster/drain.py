"""`ottla cluster drain`: moves everything off a broker."""

from __future__ import annotations

import click

from ottla.cli.cluster.connection import cluster_flag, connect
from ottla.cli.cluster.moves import (
    carry_out,
    no_wait_flag,
    plan_text,
    require_no_moves,
    take_inventory,
    throttle_flag,
)
from ottla.cli.output import say


@click.command(name="drain")
@click.argument("node_id", type=int, metavar="ID")
@cluster_flag
@throttle_flag
@no_wait_flag
def command(node_id: int, bootstrap: str | None, rate_bytes: int | None, returns_at_once: bool) -> None:
    """Move all replicas of a broker to the others, live or not.

    New topics may still be put on a broker that is live: stop it when it is empty.
    """
    from ottla.cli.cluster.replica_plan import planned

    with connect(bootstrap) as cluster:
        require_no_moves(cluster)
        found = take_inventory(cluster)
        if node_id not in found.racks and all(node_id not in nodes for nodes in found.replicas.values()):
            raise click.UsageError(f"Broker {node_id} is not in the cluster, and has no replica.")
        moves = planned(found.replicas, found.racks, found.sizes_bytes, drained=[node_id], spreads=False)
        say(*plan_text(moves))
        if moves:
            carry_out(cluster, moves, rate_bytes, returns_at_once=returns_at_once)
