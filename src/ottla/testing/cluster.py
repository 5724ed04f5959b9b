"""A real cluster for tests and `ottla cluster up`: brokers, and a process with their tree or a ZooKeeper.

    with RunningCluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        leader = cluster.leader_of("orders", 0)
        cluster.broker(leader).kill()
        cluster.wait_for_leader("orders", 0, other_than=leader)

Brokers have the node ids 1, 2, 3, ...  All waits poll the cluster's own metadata, are bounded, and report the last
state and the processes' last log lines when the state does not come.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ottla.client.wire.errors import ClientError
from ottla.model.errors import OttlaError
from ottla.testing.broker import RunningBroker
from ottla.testing.running import LOOPBACK, Place, Running
from ottla.testing.tree import RunningTree

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.wire.metadata import ClusterInfo, PartitionInfo, TopicInfo
    from ottla.testing.cluster_security import ClusterSecurity
    from ottla.testing.zookeeper import RunningZooKeeper

Seen = TypeVar("Seen")

# Generous: it is only reached when the state never comes, and the machine may be busy.
WITHIN_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.05
# The first, then twice as long each time: brokers that start learn of each other in some milliseconds.
FIRST_POLL_S: Final = 0.005
# A call to a paused broker must end early enough for the next poll to reach another one.
CALL_TIMEOUT_MS: Final = 3_000
LOG_LINES_SHOWN: Final = 15


class ClusterStateMissing(OttlaError):
    """The state that was waited for did not come; the message has the last state, and the log lines of all."""


class RunningCluster(Running):
    """`brokers_count` brokers and their tree.  Without `data_dir` they get a temporary one, removed with them.

    With `has_zookeeper` the tree is in a ZooKeeper: raises `ZooKeeperUnavailable` without Java or its jars.  Without it
    a process of Python holds the tree.

    `settings` are for all brokers.  `racks` gives each broker's, in the order of their ids.  `ports` and
    `zookeeper_port` are fixed ports, 0 for a free one; they stay the same over restarts.  `command`, `own_group` and
    `also_listen` as for `RunningBroker`.  `places`: where each broker runs, and `zookeeper_place` ZooKeeper, which then
    needs a port.  With `security` brokers and ZooKeeper are secured, and `bootstrap` is for clients that log in.
    """

    def __init__(
        self,
        brokers_count: int = 3,
        data_dir: str | Path | None = None,
        *,
        has_zookeeper: bool = False,
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        ports: Sequence[int] = (),
        zookeeper_port: int = 0,
        command: Sequence[str] = (sys.executable, "-m", "ottla"),
        own_group: bool = False,
        serves_metrics: bool = False,
        places: Sequence[Place] = (),
        zookeeper_place: Place = LOOPBACK,
        also_listen: Sequence[str] = (),
        security: ClusterSecurity | None = None,
    ) -> None:
        assert brokers_count >= 1
        assert not racks or len(racks) == brokers_count, "a rack for each broker, or none"
        assert not places or len(places) == brokers_count, "a place for each broker, or none"
        assert not ports or len(ports) == brokers_count, "a port for each broker, or none"
        assert has_zookeeper or security is None, "a secured cluster has a ZooKeeper"
        if has_zookeeper:
            from ottla.testing.zookeeper import RunningZooKeeper, find_zookeeper_jars, find_zookeeper_java

            find_zookeeper_java(), find_zookeeper_jars()  # before anything is made
        super().__init__(data_dir, "ottla-cluster-")
        self.security = security
        self.tree: RunningTree | RunningZooKeeper
        if has_zookeeper:
            self.tree = RunningZooKeeper(
                self.data_dir / "zookeeper",
                port=zookeeper_port,
                own_group=own_group,
                place=zookeeper_place,
                tls=None if security is None else security.zookeeper_tls,
            )
        else:
            self.tree = self._new_tree(own_group)
        self._settings = {**({} if security is None else security.settings), **(settings or {})}
        of_brokers = [] if security is None else [f"{security.protocol}://127.0.0.1:0"]
        self._also_listen = (*of_brokers, *also_listen)
        self._racks = tuple(racks)
        self._ports = tuple(ports) or (0,) * brokers_count
        self._places = tuple(places) or (LOOPBACK,) * brokers_count
        self._command = tuple(command)
        self._own_group = own_group
        self._serves_metrics = serves_metrics
        self._brokers: dict[int, RunningBroker] = {}

    @property
    def brokers(self) -> Mapping[int, RunningBroker]:
        """By node id; empty before the first start."""
        return self._brokers

    def broker(self, node_id: int) -> RunningBroker:
        return self._brokers[node_id]

    @property
    def has_zookeeper(self) -> bool:
        return not isinstance(self.tree, RunningTree)

    @property
    def zookeeper(self) -> RunningZooKeeper:
        assert not isinstance(self.tree, RunningTree), "the cluster was made without a ZooKeeper"
        return self.tree

    @property
    def zookeeper_connect(self) -> str:
        """For `zookeeper.connect` of the brokers."""
        return self.zookeeper.connect + ("" if self.security is None else self.security.chroot)

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    def start(self, check: Callable[[], None] = lambda: None) -> Self:
        """Start what does not run, all at the same time, and wait until the brokers serve.  Only ZooKeeper is started
        before them.

        `check` is called while it waits, and may raise.  Raises `TreeDidNotStart`, `ZooKeeperDidNotStart` or
        `BrokerDidNotStart`; what has started then runs on until `close`.
        """
        if not self.tree.is_running:
            if self.security is not None:
                self.security.make_missing()
            if isinstance(self.tree, RunningTree):
                self.tree.launch()
            else:
                self.tree.start()
            if self.security is not None:
                self.security.prepare(self.zookeeper_connect)
                self.security.write_settings(self.zookeeper_connect, self._settings)
        check()
        for node_id in range(1, len(self._ports) + 1):
            if node_id not in self._brokers:
                self._brokers[node_id] = self._new_broker(node_id)
        launched = [broker for broker in self._brokers.values() if not broker.is_running]
        for broker in launched:
            broker.launch()
        # While their processes import what they need, this one imports the client.
        import ottla.client.admin.admin  # noqa: F401

        if isinstance(self.tree, RunningTree):
            try:
                self.tree.wait_until_ready(check)
            except BaseException:
                # A later start awaits those that it launches.
                for broker in launched:
                    broker.kill()
                raise
        for broker in launched:
            broker.wait_until_ready(WITHIN_S, check)
        if len(launched) == len(self._brokers):
            self._wait_until_all_know_each_other()
        return self

    def stop(self) -> None:
        """As an operator would: the brokers first, then the tree, which their last changes go to."""
        for broker in self._brokers.values():
            broker.terminate()
        for broker in self._brokers.values():
            broker.stop()
        self.tree.stop()

    def kill(self) -> None:
        """End all at once, as the loss of the machine does."""
        for broker in self._brokers.values():
            broker.kill()
        self.tree.kill()

    def _end(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.tree.close)
            for broker in self._brokers.values():
                stack.callback(broker.close)
            for broker in self._brokers.values():
                broker.terminate()

    def info(self) -> ClusterInfo:
        """The cluster by the metadata of some broker."""
        return self._asked(lambda admin: admin.describe_cluster())

    def topics(self) -> list[TopicInfo]:
        return self._asked(lambda admin: admin.list_topics())

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """As some broker that answers sees it now; None when the topic, or the partition, is not there."""
        found = self._asked(lambda admin: admin.describe_topics([topic]))
        return found[0].partitions.get(index) if found and not found[0].error_code else None

    def leader_of(self, topic: str, index: int) -> int:
        """The node id of the leader; waits until there is one."""
        return self.wait_for_leader(topic, index)

    def wait_for_leader(self, topic: str, index: int, *, other_than: int | None = None) -> int:
        """Wait until the partition has a leader, and not `other_than`; its node id."""
        seen = self.wait_for(
            f"a leader of {topic}-{index}" + ("" if other_than is None else f" other than {other_than}"),
            lambda: self.partition(topic, index),
            lambda seen: seen is not None and seen.leader_id >= 0 and seen.leader_id != other_than,
        )
        assert seen is not None
        return seen.leader_id

    def wait_for_isr(self, topic: str, index: int, node_ids: Collection[int] | None = None) -> None:
        """Wait until exactly these replicas are in sync: all that are assigned, unless given."""
        wanted = None if node_ids is None else set(node_ids)

        def is_right(seen: PartitionInfo | None) -> bool:
            return seen is not None and set(seen.in_sync_replicas) == (set(seen.replicas) if wanted is None else wanted)

        names = "all its replicas" if wanted is None else f"the replicas {sorted(wanted)}"
        self.wait_for(f"{names} of {topic}-{index} in sync", lambda: self.partition(topic, index), is_right)

    def wait_until_replicated(self) -> None:
        """Wait until every partition of every topic has a leader and all its replicas in sync."""

        def lagging() -> list[str]:
            return [
                f"{topic.name}-{each.partition}: leader {each.leader_id}, in sync {each.in_sync_replicas}"
                for topic in self.topics()
                for each in topic.partitions.values()
                if each.leader_id < 0 or set(each.in_sync_replicas) != set(each.replicas)
            ]

        self.wait_for("every partition with a leader and in sync", lagging, lambda seen: not seen)

    def wait_for_brokers(self, node_ids: Collection[int]) -> None:
        """Wait until exactly these brokers are registered."""
        self.wait_for(
            f"the brokers {sorted(node_ids)}", lambda: set(self.info().brokers), lambda seen: seen == set(node_ids)
        )

    def _wait_until_all_know_each_other(self) -> None:
        """A broker that is ready may learn of the next one some milliseconds later, and refuse a topic with as many
        replicas until then.  Brokers that were started elsewhere may be registered, too."""
        everybody = set(self._brokers)
        for node_id, broker in self._brokers.items():
            look = partial(self._ask, broker.bootstrap, lambda admin: set(admin.describe_cluster().brokers))
            self.wait_for(f"broker {node_id} to know all the others", look, everybody.issubset)

    def wait_for(
        self, what: str, look: Callable[[], Seen], is_right: Callable[[Seen], object], within_s: float = WITHIN_S
    ) -> Seen:
        """Poll until the state is as expected; a broker that does not answer now is tried later.

        Raises `ClusterStateMissing`.
        """
        give_up_s = time.monotonic() + within_s
        last: object = "nothing"
        pause_s = FIRST_POLL_S
        while True:
            try:
                last = seen = look()
                if is_right(seen):
                    return seen
            except ClientError as error:
                last = error
            if time.monotonic() > give_up_s:
                raise ClusterStateMissing(
                    f"waited {within_s:g} s for {what}; last seen: {last!r}\n" + "\n".join(self.last_lines())
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_INTERVAL_S)

    def last_lines(self, count: int = LOG_LINES_SHOWN) -> list[str]:
        """The last log lines of all processes."""
        lines = []
        for node_id, broker in self._brokers.items():
            lines += [f"--- broker {node_id} ({'running' if broker.is_running else 'not running'})"]
            lines += broker.log_lines[-count:]
        name = "ZooKeeper" if self.has_zookeeper else "tree"
        lines += [f"--- {name} ({'running' if self.tree.is_running else 'not running'})"]
        with suppress(OSError):
            lines += self.tree.log_path.read_text(errors="replace").splitlines()[-count:]
        return lines

    def _asked(self, ask: Callable[[Admin], Seen]) -> Seen:
        """Poll the brokers in turn: one that is down or frozen must not decide."""
        running = [broker.bootstrap for broker in self._brokers.values() if broker.is_running]
        for bootstrap in running[:-1]:
            try:
                return self._ask(bootstrap, ask)
            except ClientError:
                continue
        return self._ask(running[-1] if running else self.bootstrap, ask)

    @property
    def _tree_settings(self) -> Mapping[str, str]:
        return {"tree.socket": str(self.tree.socket)} if isinstance(self.tree, RunningTree) else {}

    def _new_tree(self, own_group: bool) -> RunningTree:
        return RunningTree(self.data_dir / "tree", own_group=own_group)

    def _new_broker(self, node_id: int) -> RunningBroker:
        place = self._places[node_id - 1]
        protocol = "" if self.security is None else f"{self.security.protocol}://"
        return RunningBroker(
            self.data_dir / f"broker-{node_id}",
            listen=f"{protocol}{place.host}:{self._ports[node_id - 1]}",
            settings={**self._tree_settings, **self._settings},
            command=(*place.enter, *self._command),
            own_group=self._own_group,
            serves_metrics=self._serves_metrics,
            zookeeper=self.zookeeper_connect if self.has_zookeeper else None,
            node_id=node_id,
            rack=self._racks[node_id - 1] if self._racks else None,
            log_path=self.data_dir / f"broker-{node_id}.log",
            insecure_listen=place is not LOOPBACK,
            also_listen=self._also_listen,
        )

    def _ask(self, bootstrap: str, ask: Callable[[Admin], Seen]) -> Seen:
        from ottla.client.admin.admin import Admin
        from ottla.client.wire.cluster import Cluster
        from ottla.client.wire.options import ClientOptions
        from ottla.client.wire.security.settings import PLAINTEXT

        options = ClientOptions(
            client_id="ottla-cluster",
            call_timeout_ms=CALL_TIMEOUT_MS,
            connect_timeout_ms=1_000,
            request_timeout_ms=2_000,
            security=PLAINTEXT if self.security is None else self.security.client,
        )
        with Cluster(bootstrap, options) as cluster:
            return ask(Admin(cluster))
