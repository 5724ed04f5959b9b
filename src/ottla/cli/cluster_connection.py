"""How the verbs of `ottla cluster` reach the cluster: the one in this directory, unless a flag names another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli.client_flags import DEFAULT_BOOTSTRAP, open_cluster
from ottla.cli.local_cluster import DEFAULT_DATA_DIR, read_local_cluster

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

F = TypeVar("F", bound=Callable[..., object])


def cluster_flag(function: F) -> F:
    option = click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        metavar="HOST:PORT,...",
        help=f"Bootstrap brokers.  [default: those of ./{DEFAULT_DATA_DIR} if it is there, else {DEFAULT_BOOTSTRAP}]",
    )
    return option(function)


def connect(bootstrap: str | None) -> Cluster:
    if bootstrap is None:
        local = read_local_cluster(Path(DEFAULT_DATA_DIR))
        bootstrap = DEFAULT_BOOTSTRAP if local is None else local.bootstrap
    return open_cluster(bootstrap, "ottla-cluster")
