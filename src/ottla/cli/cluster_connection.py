"""How verbs reach a cluster: the one in this directory, unless a flag names another; and its ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ottla.cli.client_flags import DEFAULT_BOOTSTRAP, open_cluster
from ottla.cli.local_cluster import DEFAULT_DATA_DIR, read_local_cluster

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

F = TypeVar("F", bound=Callable[..., object])

CONNECT_SETTING: Final = "zookeeper.connect"


def cluster_flag(function: F) -> F:
    option = click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        metavar="HOST:PORT,...",
        help=f"Bootstrap brokers.  [default: those of ./{DEFAULT_DATA_DIR} if it is there, else {DEFAULT_BOOTSTRAP}]",
    )
    return option(function)


def connect(bootstrap: str | None, client_id: str = "ottla-cluster") -> Cluster:
    if bootstrap is None:
        local = read_local_cluster(Path(DEFAULT_DATA_DIR))
        bootstrap = DEFAULT_BOOTSTRAP if local is None else local.bootstrap
    return open_cluster(bootstrap, client_id)


def zookeeper_of(cluster: Cluster, node_ids: Iterable[int]) -> str | None:
    """The brokers' own setting; None for a single broker, which needs no ZooKeeper."""
    from ottla.client.admin import Admin
    from ottla.client.configs import ConfigResource, ResourceType
    from ottla.client.errors import ClientError

    admin = Admin(cluster)
    for node_id in node_ids:
        try:
            settings = admin.describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)), [CONNECT_SETTING])
        except ClientError:
            continue
        found = settings.get(CONNECT_SETTING)
        return None if found is None else found.value
    return None
