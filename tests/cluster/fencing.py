"""A leader that is cut off only from ZooKeeper must stop acknowledging before another one is elected.

Its own clients write to it all the time, with acks of all and of the leader alone; the moment of the election is the
modification time of the partition's state in ZooKeeper.  An acknowledgement that arrives after it breaks the promise.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ottla.client.admin.admin import Admin
from ottla.client.producing.produce_requests import ACKS_ALL, ACKS_LEADER
from ottla.client.wire.cluster import Cluster
from ottla.coordination import layout
from ottla.model.identifiers import TopicPartition
from ottla.testing.broker import RunningBroker
from tests.cluster.direct_writer import DirectWriter
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.site import broker_name
from tests.cluster.target import Target
from tests.eventually import eventually

# A separate topic without other writers: the history's topic is written only by recorded clients.
FENCE_TOPIC: Final = "fence"
_PARTITIONS_COUNT: Final = 3
_LOOK_EVERY_S: Final = 0.02
WRITES_BEFORE: Final = 5
_AFTERWARDS_S: Final = 1.0


def watch_the_fence(target: Target, cut_off_from: Iterable[str]) -> str:
    """Cut a leader off until another one leads, and for a moment more."""
    partition, broker = fenced_partition(target)
    name = broker_name(broker.node_id or 0)
    network, others = target.site.network, sorted(cut_off_from)
    with (
        _Epochs(target.cluster.zookeeper.connect, partition.partition) as epochs,
        DirectWriter(broker, partition, ACKS_ALL) as of_all,
        DirectWriter(broker, partition, ACKS_LEADER) as of_leader,
    ):
        before = epochs.wait_for_first()
        for writer in (of_all, of_leader):
            writer.wait_for_acknowledgements(WRITES_BEFORE)
        network.wall(name, others)
        try:
            if network.reaches(others[0], name):
                raise FaultWithoutEffect(f"{others[0]} reaches {name} through a wall")
            # Not from metadata: the leader that is cut off still names itself.
            elected_ms = epochs.wait_for_next(after=before)
            time.sleep(_AFTERWARDS_S)
        finally:
            stopped_count = network.open(name)
    if stopped_count == 0:
        raise FaultWithoutEffect(f"the wall of {name} stopped nothing")
    shown = []
    for writer in (of_all, of_leader):
        late = [each.answered_ms for each in writer.acknowledged if each.answered_ms > elected_ms]
        if late:
            target.clients.problems.append(
                f"{name} acknowledged {len(late)} writes with acks={writer.acks} after the election of another leader, "
                f"the last one {late[-1] - elected_ms:.0f} ms after it"
            )
        last_ms = max(each.answered_ms for each in writer.acknowledged)
        shown.append(f"acks={writer.acks} {len(writer.acknowledged)}, last {elected_ms - last_ms:.0f} ms before it")
    return f"{name} cut off from {', '.join(others)} until the next election; acknowledged: {'; '.join(shown)}"


def fenced_partition(target: Target) -> tuple[TopicPartition, RunningBroker]:
    """One that only direct writers write to, and its leader."""
    if FENCE_TOPIC not in {topic.name for topic in target.cluster.topics()}:
        # One that is back from the last fault may not be registered yet.
        target.cluster.wait_for_brokers(target.cluster.brokers)
        with Cluster(target.cluster.bootstrap) as client:
            Admin(client).create_topic(
                FENCE_TOPIC, _PARTITIONS_COUNT, len(target.cluster.brokers), {"min.insync.replicas": "2"}
            )
    partition = TopicPartition(FENCE_TOPIC, target.random.randrange(_PARTITIONS_COUNT))
    return partition, target.cluster.broker(target.cluster.leader_of(FENCE_TOPIC, partition.partition))


class _Epochs:
    """The start of each leader epoch of the partition, by ZooKeeper's modification times."""

    def __init__(self, connect: str, index: int) -> None:
        self._began_ms: dict[int, float] = {}
        self._client = KazooClient(connect)
        self._index = index
        self._is_stopped = threading.Event()
        self._has_first = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def wait_for_first(self) -> int:
        """The current epoch."""
        if not self._has_first.wait(60):
            raise FaultWithoutEffect("the state of the partition cannot be read")
        return max(self._began_ms)

    def wait_for_next(self, *, after: int) -> float:
        """The start of the first epoch after this one."""
        began = eventually(lambda: {epoch: at_ms for epoch, at_ms in list(self._began_ms.items()) if epoch > after})
        return min(began.values())

    def __enter__(self) -> _Epochs:
        self._client.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._thread.join()
        self._client.stop()
        self._client.close()

    def _look_on(self) -> None:
        while not self._is_stopped.wait(_LOOK_EVERY_S):
            with suppress(KazooException):
                topic = layout.topic_path(FENCE_TOPIC)
                (topic_id,) = self._client.get_children(topic)
                data, stat = self._client.get(f"{topic}/{topic_id}/partitions/{self._index}/state")
                # Later changes of the same epoch have later times: the earliest one counts.
                self._began_ms.setdefault(json.loads(data)["leader_epoch"], stat.mtime)
                self._has_first.set()
