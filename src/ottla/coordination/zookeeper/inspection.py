"""A look at a cluster's tree from outside: nothing is written, not even the chroot."""

from __future__ import annotations

import logging
import ssl
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from ottla.coordination import layout
from ottla.coordination.broker_registry import (
    BrokerRegistration,
    decode_registration,
    registered_ms,
    registered_node_id,
)
from ottla.coordination.node_json import Fields
from ottla.coordination.zookeeper.access import (
    ConnectString,
    ZooKeeperDistrusted,
    ZooKeeperRefused,
    ZooKeeperUnreachable,
)
from ottla.coordination.zookeeper.node_access import AccessEntry, Rights, is_unprotected
from ottla.coordination.zookeeper.requests import full_path
from ottla.coordination.zookeeper.security import ZooKeeperSecurity
from ottla.coordination.zookeeper.tls import NO_TLS_HINT, TlsFailure, connect_socket, select_sockets
from ottla.model.identifiers import NodeId

_LOG: Final = logging.getLogger("ottla.kazoo.inspection")
_LOG.setLevel(logging.CRITICAL)


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads with our TLS.  `failure` is the last one of TLS; `was_connected`: a server was reached."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self.failure: TlsFailure | None = None
        self.was_connected = False
        self._context = context

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        try:
            connected = connect_socket(self._context, *arguments, **options)
        except TlsFailure as failure:
            self.failure = failure
            raise
        self.failure, self.was_connected = None, True
        return connected

    def select(self, *arguments: Any, **options: Any) -> Any:
        return select_sockets(*arguments, **options)


class SeenBroker(NamedTuple):
    """A registration.  `ahead_ms`: how far the broker's clock was ahead of ZooKeeper's when it registered."""

    registration: BrokerRegistration
    ahead_ms: int


class TreeInspection(NamedTuple):
    """`cluster_id` is None where no cluster is.

    `open_paths`: nodes that every client that reaches ZooKeeper may change, or whose secrets it may read.
    """

    cluster_id: str | None
    brokers: dict[NodeId, SeenBroker]
    open_paths: list[str]


def inspect_tree(connect: str, security: ZooKeeperSecurity, timeout_s: float) -> TreeInspection:
    """Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperDistrusted`, `ZooKeeperRefused`, and
    `NodeDamaged`."""
    where = ConnectString.parse(connect)
    handler = _TlsHandler(None if security.tls is None else security.tls.context())
    client = KazooClient(
        ",".join(where.addresses),
        timeout=timeout_s,
        auth_data=security.auth_data,
        read_only=True,
        logger=_LOG,
        randomize_hosts=True,
        handler=handler,
    )
    try:
        client.start(timeout=timeout_s)
        return _inspected(client, where.chroot)
    except (NoAuthError, AuthFailedError) as error:
        raise ZooKeeperRefused(f"the nodes below {where} belong to another user") from error
    except (KazooTimeoutError, KazooException, OSError) as error:
        problem = f"no server of {where} answered within {timeout_s:g} s"
        if handler.failure is not None:
            kind = ZooKeeperDistrusted if handler.failure.is_final else ZooKeeperUnreachable
            raise kind(f"{problem}: {handler.failure.problem}", hint=handler.failure.hint) from error
        if handler.was_connected and security.tls is None:
            raise ZooKeeperUnreachable(problem, hint=f"check that ZooKeeper runs; {NO_TLS_HINT}") from error
        raise ZooKeeperUnreachable(problem) from error
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
    paths = ("/", layout.CLUSTER_ID, layout.LOGIN_SECRET, *layout.STANDING)
    # All are sent before the first is awaited: a consumer's start waits for one round trip.
    answers = [client.get_acls_async(full_path(chroot, path)) for path in paths]
    return TreeInspection(
        Fields.parse(layout.CLUSTER_ID, data).text("id"),
        brokers,
        [path for path, answer in zip(paths, answers, strict=True) if _is_unprotected(path, answer)],
    )


def _is_unprotected(path: str, answer: Any) -> bool:
    try:
        found, _ = answer.get()
    except (NoNodeError, NoAuthError):
        return False  # without the right to read it, this client may not change it
    access = tuple(AccessEntry(Rights(acl.perms), acl.id.scheme, acl.id.id) for acl in found)
    return is_unprotected(path, access)
