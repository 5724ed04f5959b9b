"""How long clients are silent when their leader is cut off: per library, role and kind of cut.

    python -m tests.cluster.cut_off_leaders [--cut KIND ...] [--seconds S] [--bootstrap leader|all] [--library NAME ...]
        [--apache]

Three brokers and a ZooKeeper in separate namespaces (root), a topic of one partition, and for each library a
reader, a member of a group that the leader coordinates, a producer and a poller of latest offsets.  Prints a line for
each client, and ends with 1 where one was silent for longer than 10 s, or where the checker found an anomaly.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from tests.cluster import isolation
from tests.cluster.apache_cluster import ApacheCluster
from tests.cluster.chaos_run import new_network
from tests.cluster.network import Direction, Network
from tests.cluster.site import CLIENTS, ZOOKEEPER, ZOOKEEPER_PORT, broker_name
from tests.cluster.target import group_coordinated_by
from tests.eventually import eventually
from tests.history import waiting_clients
from tests.history.checker import check
from tests.history.log_checks import SILENCE_NS_MAX
from tests.history.operations import LatestOffset, Operation, Outcome, Poll, Send, Servable, Served, read_lines
from tests.history.recorder import now_ns
from tests.history.report import Anomaly
from tests.interop.clients.recorded_clients import waiting_java_client
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

TOPIC: Final = "cut"
BROKERS_COUNT: Final = 3
OFFSETS_PARTITIONS_COUNT: Final = 50
# Checks that do not apply to a run of one partition without a final reader.
_NOT_JUDGED: Final = frozenset({Anomaly.UNSEEN, Anomaly.NOT_DELIVERED})
_AFTERWARDS_S: Final = 8.0
_ENDED_WITHIN_S: Final = 20.0
# One millisecond less than the session's time-out: the session survives, and the lease expires.
PAUSED_S: Final = 5.9
Kind = str
JAVA: Final = "java"
LIBRARIES: Final = (*sorted(waiting_clients.CLIENTS), JAVA)
CUTS: Final[Mapping[Kind, str]] = {
    "zookeeper": "from ZooKeeper only",
    "zookeeper-and-peers": "from ZooKeeper and the other brokers",
    "zookeeper-in": "from ZooKeeper, one way: what it sends does not arrive",
    "zookeeper-out": "from ZooKeeper, one way: it receives all and is not heard",
    "paused": "stopped for less than a session",
}


@dataclass
class Client:
    name: str
    process: subprocess.Popen[bytes]
    history: Path


@dataclass
class Silence:
    """Of one client; `anomalies` are those of the whole run."""

    client: str
    longest_s: float
    at_s: float


@dataclass
class Outcomes:
    silences: list[Silence]
    anomalies: dict[str, list[str]]

    @property
    def is_clean(self) -> bool:
        # Offset pollers are judged by their responses: two of the libraries do not look for another leader (see
        # docs/operating.md) after a refusal by any broker.
        judged = [each for each in self.silences if waiting_clients.ASKER not in each.client]
        return not self.anomalies and all(each.longest_s <= SILENCE_NS_MAX / 1e9 for each in judged)


def measure(
    network: Network,
    directory: Path,
    cut: Kind,
    *,
    seconds: float,
    libraries: Sequence[str],
    is_bootstrapped_at_leader: bool,
    is_apache: bool = False,
) -> Outcomes:
    """Cut the leader off for this long; measure how long each client was silent since."""
    cluster = _cluster(network, directory / "cluster", is_apache=is_apache)
    clients: list[Client] = []
    try:
        with cluster:
            with Cluster(cluster.bootstrap) as client:
                Admin(client).create_topic(TOPIC, 1, BROKERS_COUNT, {"min.insync.replicas": "2"})
            cluster.wait_until_replicated()
            leader = cluster.broker(cluster.leader_of(TOPIC, 0))
            _make_groups(cluster)
            bootstrap = leader.bootstrap if is_bootstrapped_at_leader else cluster.bootstrap
            for library in libraries:
                for role in waiting_clients.ROLES:
                    name = f"{library}-{role}"
                    if role == waiting_clients.MEMBER:
                        name = group_coordinated_by(cluster, leader.node_id or 0, name)
                    clients.append(_start(network, directory, library, role, name, bootstrap))
            # From a client that the fault does not affect: otherwise readers could be silent for lack of records.
            clients.append(_start(network, directory, "ottla", waiting_clients.PRODUCER, "feeder", cluster.bootstrap))
            _wait_until_at_work(clients)
            began_ns = now_ns()
            _strike(network, cluster, leader, cut, seconds)
            ended_ns = now_ns()
            time.sleep(_AFTERWARDS_S)
            for each in clients:
                each.process.terminate()
            for each in clients:
                # Its shutdown is not measured.
                with suppress(subprocess.TimeoutExpired):
                    each.process.wait(_ENDED_WITHIN_S)
    finally:
        for each in clients:
            each.process.kill()
            each.process.wait()
    history = list(read_lines([each.history for each in clients]))
    servable = Servable("run", began_ns, ended_ns + round(_AFTERWARDS_S * 1e9), Served.CLIENTS)
    report = check([*history, servable], ())
    anomalies = {
        anomaly.name: examples
        for anomaly, examples in report.examples.items()
        if examples and anomaly not in _NOT_JUDGED
    }
    return Outcomes([_silence(history, each.name, servable) for each in clients], anomalies)


def _cluster(network: Network, directory: Path, *, is_apache: bool) -> RunningCluster:
    places = [network.place(broker_name(node_id)) for node_id in range(1, BROKERS_COUNT + 1)]
    if is_apache:
        return ApacheCluster(directory, places, network.place(ZOOKEEPER))
    return RunningCluster(
        BROKERS_COUNT,
        directory,
        settings={"auto.leader.rebalance.enable": "false"},
        zookeeper_port=ZOOKEEPER_PORT,
        places=places,
        zookeeper_place=network.place(ZOOKEEPER),
        has_zookeeper=True,
    )


def _make_groups(cluster: RunningCluster) -> None:
    with Cluster(cluster.bootstrap) as client:
        Admin(client).create_topic(
            OFFSETS_TOPIC, OFFSETS_PARTITIONS_COUNT, BROKERS_COUNT, {"cleanup.policy": "compact"}
        )
    # A broker of Apache Kafka may learn of a new topic after the client.
    cluster.leader_of(OFFSETS_TOPIC, OFFSETS_PARTITIONS_COUNT - 1)
    cluster.wait_until_replicated()


def _start(network: Network, directory: Path, library: str, role: str, name: str, bootstrap: str) -> Client:
    history = directory / f"{name}.history"
    program: tuple[str, ...] = (sys.executable, "-m", "tests.history.waiting_clients", library)
    if library == JAVA:
        program = waiting_java_client()
    with (directory / f"{name}.output").open("wb") as output:
        process = subprocess.Popen(
            [*network.place(CLIENTS).enter, *program, role, name, bootstrap, TOPIC, "1", str(history)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Client(name, process, history)


def _wait_until_at_work(clients: Iterable[Client]) -> None:
    def idle() -> list[str]:
        started = [each for each in clients if each.history.exists()]
        working = {
            operation.process for operation in read_lines([each.history for each in started]) if _is_progress(operation)
        }
        return [each.name for each in clients if each.name not in working]

    eventually(idle, lambda names: not names, within_s=120, every_s=0.5)


def _is_progress(operation: Operation) -> bool:
    if isinstance(operation, Send):
        return operation.outcome is Outcome.OK
    return isinstance(operation, Poll | LatestOffset)


def _strike(network: Network, cluster: RunningCluster, leader: RunningBroker, cut: Kind, seconds: float) -> None:
    name = broker_name(leader.node_id or 0)
    if cut == "paused":
        leader.pause()
        time.sleep(PAUSED_S)
        leader.resume()
        time.sleep(max(seconds - PAUSED_S, 0))
        return
    others = [ZOOKEEPER]
    if cut == "zookeeper-and-peers":
        others += [broker_name(node_id) for node_id in cluster.brokers if node_id != leader.node_id]
    direction = {"zookeeper-in": Direction.IN, "zookeeper-out": Direction.OUT}.get(cut, Direction.BOTH)
    network.wall(name, others, direction)
    try:
        time.sleep(seconds)
    finally:
        network.open(name)


def _silence(history: Iterable[Operation], client: str, window: Servable) -> Silence:
    times = sorted(
        operation.completed_ns  # type: ignore[union-attr]  # all that is progress has it
        for operation in history
        if operation.process == client and _is_progress(operation)
    )
    inside = [window.began_ns, *(at for at in times if window.began_ns < at < window.ended_ns), window.ended_ns]
    longest, began_ns = max((later - earlier, earlier) for earlier, later in pairwise(inside))
    return Silence(client, longest / 1e9, (began_ns - window.began_ns) / 1e9)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cut", choices=sorted(CUTS), action="append", help="only this kind (repeatable)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the leader is cut off (default 30)")
    parser.add_argument("--bootstrap", choices=("leader", "all"), default="leader", help="what clients know at first")
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="(repeatable)")
    parser.add_argument(
        "--apache", action="store_true", help="brokers of Apache Kafka, and its controller as ZooKeeper"
    )
    parser.add_argument("--keep", action="store_true", help="keep the run's files")
    chosen = parser.parse_args()
    if not isolation.is_isolated():
        reason = isolation.missing()
        if reason is not None:
            print(f"nothing can be run: {reason}")
            return 1
        isolation.enter([sys.executable, "-m", "tests.cluster.cut_off_leaders", *sys.argv[1:]])
    libraries = chosen.library or list(LIBRARIES)
    if JAVA in libraries:
        try:
            waiting_java_client()
        except (KafkaUnavailable, PeerUnavailable) as reason:
            print(f"without {JAVA}: {reason}")
            libraries.remove(JAVA)
    is_clean = True
    network_directory = Path(tempfile.mkdtemp(prefix="ottla-network-"))
    network = new_network(network_directory)
    try:
        for cut in chosen.cut or list(CUTS):
            directory = Path(tempfile.mkdtemp(prefix="ottla-cut-"))
            outcomes = measure(
                network,
                directory,
                cut,
                seconds=chosen.seconds,
                libraries=libraries,
                is_bootstrapped_at_leader=chosen.bootstrap == "leader",
                is_apache=chosen.apache,
            )
            for each in outcomes.silences:
                line = f"cut={cut} bootstrap={chosen.bootstrap} client={each.client}"
                print(f"{line} longest_silence_s={each.longest_s:.1f} from_s={each.at_s:.1f}", flush=True)
            for anomaly, examples in outcomes.anomalies.items():
                print(f"cut={cut} anomaly={anomaly} {examples[:3]}", flush=True)
            is_clean = is_clean and outcomes.is_clean
            if chosen.keep:
                print(f"all files are kept in {directory}")
            else:
                shutil.rmtree(directory)
    finally:
        network.close()
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
