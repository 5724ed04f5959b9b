"""The broker's part in the tree: its session, its registration, and the registries that it reads and writes.

A standalone broker has its tree in its data directory and is the only one to change it.  A member of a cluster shares
the tree: it follows the others' changes by watches, and registers again whenever its session was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.broker.tree.registrar import Registrar
from ottla.broker.tree.tree_backend import TreeBackend
from ottla.coordination import layout
from ottla.coordination.acls import AclRegistry
from ottla.coordination.adoption import AdoptionUnderWay, is_under_way
from ottla.coordination.broker_registry import BrokerRegistration, BrokerRegistry, cluster_id
from ottla.coordination.configs import ConfigRegistry
from ottla.coordination.features import FeatureRegistry, require_supported
from ottla.coordination.producer_ids import ProducerIdBlocks
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import SessionState, Tree
from ottla.coordination.tree_retries import TreeRetries
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.storage.errors import ForeignDirectory

log = logging.getLogger(__name__)


class Coordination:
    """The registries of one tree, and this broker's session with it.  Opened by `open`."""

    def __init__(
        self,
        tree: Tree,
        own_cluster_id: str,
        registration: BrokerRegistration,
        clock: Clock,
        on_stale: Callable[[], None] | None,
        on_session_lost: Callable[[], None],
        data_dir: str,
    ) -> None:
        """`on_stale`: called when the tree has changes by others; None for the only broker of a tree.

        `on_session_lost`: called at once, before anything is read from the next session.
        """
        self.cluster_id: Final = own_cluster_id
        node_id = registration.node_id
        self.tree: Final = tree
        self._data_dir: Final = data_dir
        self.topics: Final = TopicRegistry(tree, on_stale=on_stale)
        self.configs: Final = ConfigRegistry(tree, on_stale=on_stale)
        # Read only where there is an authorizer.
        self.acls: Final = AclRegistry(tree, on_stale=on_stale)
        self.features: Final = FeatureRegistry(tree, on_stale=on_stale)
        self.producer_ids: Final = ProducerIdBlocks(tree, node_id)
        self.lifecycle: Final = (
            BrokerLifecycle.sole(node_id) if on_stale is None else BrokerLifecycle(node_id, tree.lease)
        )
        brokers = BrokerRegistry(tree, on_stale=on_stale)
        self.registrar: Final = Registrar(self.lifecycle, brokers, registration, tree, clock, asyncio.sleep)
        self._on_session_lost = on_session_lost
        self._is_closing = False
        if on_stale is not None:
            tree.add_session_listener(partial(self._on_session, on_stale))

    @classmethod
    async def open(
        cls,
        backend: TreeBackend,
        registration: BrokerRegistration,
        clock: Clock,
        on_stale: Callable[[], None] | None,
        *,
        on_session_lost: Callable[[], None],
        retries: TreeRetries,
        data_dir: str,
        found_cluster_id: str | None,
    ) -> Coordination:
        """Begin a session and read the tree.  `found_cluster_id`: the cluster whose topics are in the data directory.

        Raises `ForeignDirectory` when that is another cluster; then the tree is not changed.  Raises
        `FeatureNotSupported`.
        """
        tree = await backend.connect()

        async def lay_out() -> str:
            if on_stale is not None:
                await _check_cluster(tree, data_dir, found_cluster_id)
            await layout.lay_out(tree)
            return await cluster_id(tree)

        async def read() -> None:
            if on_stale is not None:
                # What is read now decides what the logs are worth: a server that lags must not answer.
                await tree.sync()
            await coordination.topics.refresh()
            await coordination.configs.refresh()
            await coordination.features.refresh()

        try:
            own_cluster_id = await retries.until_done(lay_out)
            coordination = cls(tree, own_cluster_id, registration, clock, on_stale, on_session_lost, data_dir)
            await retries.until_done(read)
            require_supported(coordination.features.view.finalized)
        except BaseException:
            await tree.close()
            raise
        return coordination

    async def check_cluster(self) -> None:
        """Raises `ForeignDirectory` when the tree of the present session is another cluster's, or none's: ZooKeeper
        lost its data, or another one has its address.  Nothing in that tree is of this broker's logs.
        """
        await _check_cluster(self.tree, self._data_dir, self.cluster_id)

    async def close(self) -> None:
        """End the session, and with it the registration: the other brokers learn of it at once."""
        self._is_closing = True
        await self.tree.close()

    def _on_session(self, on_stale: Callable[[], None], state: SessionState) -> None:
        if self._is_closing:
            return
        if state is SessionState.LOST:
            log.warning("session.lost", extra=fields(broker_epoch=self.lifecycle.broker_epoch))
            self.lifecycle.unregistered()
            self._on_session_lost()
        elif state is SessionState.CONNECTED:
            if self.lifecycle.broker_epoch == NOT_REGISTERED:
                on_stale()
        else:
            log.warning("session.suspended")


async def _check_cluster(tree: Tree, data_dir: str, found: str | None) -> None:
    if await is_under_way(tree):
        raise AdoptionUnderWay("the ZooKeeper tree is being copied from that of a standalone broker")
    if found is None:
        return
    if await tree.exists(layout.CLUSTER_ID) is None:
        raise ForeignDirectory(
            f"{data_dir} holds the topics of cluster {found}, and the ZooKeeper tree has no cluster yet",
            hint="check zookeeper.connect; the tree of a standalone broker is moved there by `ottla cluster "
            f"adopt --data-dir {data_dir} --zookeeper CONNECT`",
        )
    present = await cluster_id(tree)
    if present != found:
        raise ForeignDirectory(
            f"{data_dir} belongs to cluster.id {found}, the ZooKeeper tree to {present}",
            hint="check zookeeper.connect, or give this broker its own empty --data-dir",
        )
