"""How this broker follows the tree: it registers in each session, and applies what other brokers have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.assembly.authorizer_parts import AuthorizerParts
from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.net.listener import listen
from ottla.broker.topics.served_topics import ServedTopics
from ottla.coordination import elections
from ottla.coordination.features import levels_to_raise
from ottla.model import broker_settings as setting
from ottla.runtime.loop_offload import LoopOffload
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.broker.replicas.cluster_part import ClusterPart

# ZooKeeper ends sessions in steps of its tick.
ID_MARGIN_MS: Final = 2_000


class Registering:
    """Registers this broker, in the first session and in each later one, as a new incarnation of its replicas."""

    def __init__(self, start: BrokerStart, tree: TreeParts, directory: LogDirectory) -> None:
        self._start: Final = start
        self._tree: Final = tree
        self._directory: Final = directory

    async def first(self, listening: Listening) -> None:
        """Before the first partition is served."""
        start, tree = self._start, self._tree
        # A broker that was killed may be live to the others until its session ends; another broker of this id stays.
        patience_ms = 0 if start.is_sole else start.settings[setting.ZOOKEEPER_SESSION_TIMEOUT_MS] + ID_MARGIN_MS
        was_clean = start.is_sole and self._directory.was_clean
        if not start.is_sole:
            # Before the registration: connections to a live broker that are refused would mean that its process ended.
            for each in listening.sockets:
                listen(each)
        await start.retries.until_done(lambda: self.register(patience_ms, was_clean=was_clean))
        if tree.generation is not None:
            tree.generation.start(self._directory.stored)

    async def register(self, patience_ms: int = 0, *, was_clean: bool = False) -> None:
        """A sole broker leads its partitions in this incarnation; in a cluster, elections decide."""
        coordination = self._tree.coordination
        broker_epoch = await coordination.registrar.register(
            patience_ms, self._set_complete_from, self._tree.generation
        )
        if self._start.is_sole:
            log_epochs = {partition: log.leader_epoch for partition, log in self._directory.logs.items()}
            changes = elections.after_start(
                coordination.topics.view, self._start.node_id, broker_epoch, log_epochs, was_clean=was_clean
            )
            await coordination.topics.change_states(changes)
        await coordination.topics.refresh()

    async def _set_complete_from(self, broker_epoch: int) -> None:
        """What is reported of the logs from now on is under this epoch, and kept."""
        if self._start.is_sole:
            return
        try:
            await self._directory.set_complete_from_in_steps(broker_epoch, LoopOffload())
        except OSError as error:
            raise StorageError(f"the registration cannot be recorded in {self._directory.path}: {error}") from error


class TreeUpdates:
    """`apply` is one pass of the `TreeFollower`."""

    def __init__(
        self,
        registering: Registering,
        tree: TreeParts,
        served: ServedTopics,
        cluster: ClusterPart | None,
        authorizer: AuthorizerParts | None,
    ) -> None:
        self._registering: Final = registering
        self._tree: Final = tree
        self._served: Final = served
        self._cluster: Final = cluster
        self._authorizer: Final = authorizer

    async def apply(self) -> None:
        """Read what changed in the tree, and act on it."""
        coordination = self._tree.coordination
        if self._authorizer is not None:
            # First: a right that was revoked must end also when other changes cannot be followed.
            await self._authorizer.acls.follow()
        if not coordination.lifecycle.is_registered:
            await coordination.check_cluster()
            await coordination.topics.refresh()
            await self._registering.register()
        await coordination.registrar.refresh()
        await self._served.follow()
        self.elect()
        await self.finalize_features()

    async def finalize_features(self) -> None:
        """Raise the features to the levels that all brokers of the cluster support by now."""
        coordination = self._tree.coordination
        finalized = (await coordination.features.refresh()).finalized
        raised = levels_to_raise(finalized, coordination.registrar.view, coordination.topics.view)
        if raised:
            await coordination.features.finalize(raised)

    def elect(self) -> None:
        """The logs of the served view exist, as far as they can be created."""
        if self._cluster is not None:
            self._cluster.on_view(self._served.view)
        if self._tree.generation is not None:
            self._tree.generation.on_view(self._served.view)
