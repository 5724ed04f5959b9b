"""A real cluster for tests: brokers that a test can kill, pause, slow down and fill up, and their tree, without Java.

    with ControlledCluster(3) as cluster, cluster.namespace() as namespace:
        orders = namespace.topic("orders")
        leader = cluster.leader_of(orders, 0)
        with cluster.broker(leader).killed():
            cluster.wait_for_leader(orders, 0, other_than=leader)

All its processes end when the test's process does, however that ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import IO, TYPE_CHECKING, Final

from ottla.testing.cluster import RunningCluster
from ottla.testing.controlled.broker import ControlledBroker, PauseGuard
from ottla.testing.tree import RunningTree

if TYPE_CHECKING:
    from ottla.testing.namespace import Namespace

# A topic survives the loss of any broker but its last.
REPLICAS_MAX: Final = 3


class ControlledTree(RunningTree):
    """The process of a cluster's tree, which ends with the test's process, and then removes its directory."""

    def __init__(self, data_dir: Path) -> None:
        # A terminal's Ctrl-C is for the tests, as with their brokers.
        super().__init__(data_dir, own_group=True)
        # The kernel closes it with the test's process.
        self._held_open: int | None = None
        self._guard: PauseGuard | None = None

    @property
    def command_line(self) -> Sequence[str]:
        return [sys.executable, "-m", "ottla.testing.controlled.tree_process", str(self.data_dir)]

    @property
    def is_disturbed(self) -> bool:
        """Whether it does not run, or is frozen."""
        return not self.is_running or self._guard is not None

    def _spawn(self, log: IO[bytes], stdin: int) -> Popen[bytes]:
        # It may have been killed by its id.
        self._end_guard()
        self._close_input()
        theirs, self._held_open = os.pipe()
        try:
            return super()._spawn(log, theirs)
        finally:
            os.close(theirs)

    def pause(self) -> None:
        """Freeze it (SIGSTOP), until `resume` or the end of the test's process."""
        if self._guard is None:
            self._guard = PauseGuard(self.pid)
        super().pause()

    def resume(self) -> None:
        super().resume()
        self._end_guard()

    def stop(self) -> None:
        super().stop()
        self._end_guard()

    def kill(self) -> None:
        super().kill()
        self._end_guard()

    def close(self) -> None:
        super().close()
        self._close_input()

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.end()

    def _close_input(self) -> None:
        if self._held_open is not None:
            os.close(self._held_open)
            self._held_open = None


class ControlledCluster(RunningCluster):
    """`brokers_count` brokers with the node ids 1, 2, 3, ..., each of which is a `ControlledBroker`, and their tree.

    `settings` are for all brokers, by Kafka's names; the environment's do not count.  Topics have up to three replicas
    unless these settings or their creation say otherwise.

    What a test does to brokers lasts until `restore`.
    """

    def __init__(self, brokers_count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(brokers_count, settings={**_defaults(brokers_count), **(settings or {})})

    def broker(self, node_id: int) -> ControlledBroker:
        broker = super().broker(node_id)
        assert isinstance(broker, ControlledBroker)
        return broker

    def restore(self) -> None:
        """Undo all that a test has done: every broker and the tree run, at full speed, by the machine's clock.

        Raises `BrokerEnded`, when all run again, if a broker had ended unexpectedly.
        """
        assert isinstance(self.tree, ControlledTree)
        is_disturbed = self.tree.is_disturbed
        if self.tree.is_running:
            self.tree.resume()
        else:
            self.tree.start()
        ended: Exception | None = None
        for node_id in self.brokers:
            broker = self.broker(node_id)
            is_disturbed |= broker.is_disturbed
            try:
                broker.restore()
            except Exception as error:  # noqa: BLE001 (raised when the others run)
                ended = error
        if is_disturbed:
            self._wait_until_all_know_each_other()
        if ended is not None:
            raise ended

    def namespace(self, prefix: str = "test") -> Namespace:
        """Topics that are gone at the end of a block, as those of a broker."""
        from ottla.testing.namespace import Namespace

        return Namespace(self.bootstrap, prefix)

    def _new_tree(self, own_group: bool) -> RunningTree:
        # The whole directory: brokers have theirs elsewhere.
        return ControlledTree(self.data_dir)

    def _new_broker(self, node_id: int) -> ControlledBroker:
        # A temporary directory for each, which the broker removes where the test's process cannot.
        return ControlledBroker({**self._tree_settings, **self._settings}, node_id=node_id)


def _defaults(brokers_count: int) -> dict[str, str]:
    replicas_count = str(min(brokers_count, REPLICAS_MAX))
    return {
        "default.replication.factor": replicas_count,
        "offsets.topic.replication.factor": replicas_count,
        "transaction.state.log.replication.factor": replicas_count,
        "transaction.state.log.min.isr": str(min(brokers_count, 2)),
    }
