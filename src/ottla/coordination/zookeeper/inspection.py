"""A look at a cluster's tree from outside: nothing is written, not even the chroot."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ottla.coordination import layout
from ottla.coordination.node_json import Fields
from ottla.coordination.registries import BrokerRegistration, decode_registration, registered_ms, registered_node_id
from ottla.coordination.zookeeper.access import ConnectString, DigestCredentials, ZooKeeperRefused, ZooKeeperUnreachable
from ottla.model.identifiers import NodeId

_LOG: Final = logging.getLogger("ottla.kazoo.inspection")
_LOG.setLevel(logging.CRITICAL)
_ANYONE: Final = "world"


class SeenBroker(NamedTuple):
    """A registration.  `ahead_ms`: how far the broker's clock was ahead of ZooKeeper's when it registered."""

    registration: BrokerRegistration
    ahead_ms: int


class TreeInspection(NamedTuple):
    """`cluster_id` is None where no cluster is.

    `open_paths`: nodes that every client that reaches ZooKeeper may change.
    """

    cluster_id: str | None
    brokers: dict[NodeId, SeenBroker]
    open_paths: list[str]


def inspect_tree(connect: str, digest: DigestCredentials | None, timeout_s: float) -> TreeInspection:
    """Raises `BadConnectString`, `ZooKeeperUnreachable`, `ZooKeeperRefused`, and `NodeDamaged`."""
    where = ConnectString.parse(connect)
    auth = None if digest is None else [("digest", digest.credential)]
    client = KazooClient(
        ",".join(where.addresses), timeout=timeout_s, auth_data=auth, read_only=True, logger=_LOG, randomize_hosts=True
    )
    try:
        client.start(timeout=timeout_s)
        return _inspected(client, where.chroot)
    except (NoAuthError, AuthFailedError) as error:
        raise ZooKeeperRefused(f"the nodes below {where} belong to another user") from error
    except (KazooTimeoutError, KazooException, OSError) as error:
        raise ZooKeeperUnreachable(f"no server of {where} answered within {timeout_s:g} s") from error
    finally:
        client.stop()
        client.close()


def _inspected(client: KazooClient, chroot: str) -> TreeInspection:
    try:
        data, _ = client.get(chroot + layout.CLUSTER_ID)
    except NoNodeError:
        return TreeInspection(None, {}, [])
    brokers: dict[NodeId, SeenBroker] = {}
    for name in client.get_children(chroot + layout.BROKER_IDS):
        node_id = registered_node_id(name)
        path = layout.broker_path(node_id)
        try:
            found, stat = client.get(chroot + path)
        except NoNodeError:
            continue  # it left in between
        ahead_ms = registered_ms(path, found) - stat.ctime
        brokers[node_id] = SeenBroker(decode_registration(node_id, path, found), ahead_ms)
    paths = (layout.CLUSTER_ID, layout.TOPICS, layout.BROKER_IDS, layout.CHANGES)
    return TreeInspection(
        Fields.parse(layout.CLUSTER_ID, data).text("id"),
        brokers,
        [path for path in paths if any(acl.id.scheme == _ANYONE for acl in client.get_acls(chroot + path)[0])],
    )
