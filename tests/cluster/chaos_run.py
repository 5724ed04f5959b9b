"""Three brokers, a ZooKeeper, producers and a group, while faults strike; judged by the history checker.

A run that is not clean keeps its directory: histories, clients' outputs, the logs of all processes, and all data.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.storage.log_files import LOG_SUFFIX
from ottla.testing.cluster import ClusterStateMissing, RunningCluster
from ottla.testing.running import LOOPBACK
from tests.cluster.broker_clocks import SHIFTED_COMMAND, BrokerClocks
from tests.cluster.clock_faults import CLOCK_FAULTS, CLOCK_SETTINGS
from tests.cluster.fault_table import (
    ALL_FAULTS,
    CONTROL_FAULTS,
    HURTS_THE_GROUP,
    LEAVES_A_REPLICA,
    SILENT_BROKER_FAULTS,
)
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.faults import SESSION_TIMEOUT_MS
from tests.cluster.network import Network
from tests.cluster.servability import ALL, Servability
from tests.cluster.site import CLIENTS, ZOOKEEPER, ZOOKEEPER_PORT, Site, broker_name
from tests.cluster.target import MIN_IN_SYNC, Fault, Target
from tests.history.checker import check, settled_commits
from tests.history.clients import (
    LIBRDKAFKA,
    PARTITIONS_COUNT,
    TOPIC,
    HistoryClients,
    MemberKind,
    ProducerKind,
    ReaderKind,
    is_acknowledged,
    read_finally,
)
from tests.history.log_checks import SILENCE_NS_MAX
from tests.history.operations import Commit, Operation, Outcome, Poll, Served, Snapshot
from tests.history.producing import SOCKET_TIMEOUT_MS
from tests.history.report import Report
from tests.history.workload import SETTINGS

BROKERS_COUNT: Final = 3
REPLICAS_COUNT: Final = 3
PAUSE_S: Final = (0.2, 4.0)
LINES_SHOWN: Final = 30
DIFFERS: Final = "differs from"
NOT_CONVERGED: Final = "the replicas did not converge"
PLAIN_COMMAND: Final = (sys.executable, "-m", "ottla")
CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": "3000",
}


@dataclass
class ClusterResult:
    """The checker's verdict, and the other observations."""

    report: Report
    strikes: Counter[str]
    evidence: list[str]
    # The longest time without an acknowledgement, over all partitions.
    longest_silence_s: float
    # Acknowledged to a producer, polled by a member, or read in all snapshots of a reader.
    records: Counter[str]
    # Commits without a confirmation or a refusal.
    unknown_commits: Sequence[Commit] = ()
    problems: list[str] = field(default_factory=list)
    kept_directory: Path | None = None
    last_lines: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return self.report.is_clean and not self.problems

    def __str__(self) -> str:
        lines = [
            " ".join(f"{name}={count}" for name, count in sorted(self.strikes.items())),
            f"longest_silence_s={self.longest_silence_s:.1f}",
            str(self.report),
            *map(described, self.unknown_commits),
            *self.problems,
        ]
        if self.kept_directory is not None:
            lines += [*self.evidence, *self.last_lines, f"all files of this run are kept in {self.kept_directory}"]
        return "\n".join(lines)


def run_cluster(
    kinds: Sequence[MemberKind],
    plan: Sequence[str],
    *,
    seed: int,
    pause_s: tuple[float, float] = PAUSE_S,
    producers: Sequence[ProducerKind] = (LIBRDKAFKA, LIBRDKAFKA),
    command: Sequence[str] = PLAIN_COMMAND,
    settings: Mapping[str, str] = CLUSTER_SETTINGS,
    network: Network | None = None,
    readers: Sequence[ReaderKind] = (),
    silence_ns_max: int = SILENCE_NS_MAX,
) -> ClusterResult:
    """A fresh cluster, clients, the faults of `plan` (names of `ALL_FAULTS`) with pauses between them, and the verdict.

    With a `network` each process has its namespace there, and each broker its own disk.
    """
    directory = Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    cluster_directory = directory / "cluster"
    node_ids = range(1, BROKERS_COUNT + 1)
    clocks = None
    if not CLOCK_FAULTS.keys().isdisjoint(plan):
        assert command == PLAIN_COMMAND, "brokers have either clocks of their own or a planted fault"
        clocks, command = BrokerClocks(directory / "clocks", node_ids), SHIFTED_COMMAND
        settings = {**settings, **CLOCK_SETTINGS}
    with ExitStack() as stack:
        site, cluster = None, None
        if network is not None:
            site = stack.enter_context(Site(network, directory / "disks", cluster_directory, node_ids))
        try:
            cluster = new_cluster(cluster_directory, network, clocks, command, settings)
            with cluster:
                enter = () if network is None else network.place(CLIENTS).enter
                clients = HistoryClients(cluster.bootstrap, kinds, seed, directory, producers, enter, readers)
                servability = Servability(clients.note_servable)
                target = Target(cluster, clients, random.Random(seed), servability, site, clocks)
                result = _run(target, plan, pause_s, silence_ns_max)
        except BaseException as error:
            lines = [] if cluster is None else cluster.last_lines(LINES_SHOWN)
            error.add_note("\n".join([*lines, f"all files of this run are kept in {directory}"]))
            if site is not None:
                site.keep(directory)
            raise
        directories = [cluster_directory / broker_name(node_id) for node_id in node_ids]
        result.problems += differences(directories, clients.partitions_count)
        if not result.is_clean:
            result.kept_directory, result.last_lines = directory, cluster.last_lines(LINES_SHOWN)
            if site is not None:
                site.keep(directory)
    if result.is_clean:
        shutil.rmtree(directory)
    return result


def new_cluster(
    directory: Path,
    network: Network | None,
    clocks: BrokerClocks | None,
    command: Sequence[str],
    settings: Mapping[str, str],
) -> RunningCluster:
    node_ids = range(1, BROKERS_COUNT + 1)
    places = {each: LOOPBACK if network is None else network.place(broker_name(each)) for each in node_ids}
    if clocks is not None:
        places = {node_id: clocks.placed(node_id, place) for node_id, place in places.items()}
    return RunningCluster(
        BROKERS_COUNT,
        directory,
        settings=settings,
        command=command,
        zookeeper_port=0 if network is None else ZOOKEEPER_PORT,
        places=list(places.values()),
        zookeeper_place=LOOPBACK if network is None else network.place(ZOOKEEPER),
        has_zookeeper=True,
    )


def new_network(directory: Path) -> Network:
    """With a place for each process of a cluster, and one for all its clients."""
    network = Network(directory)
    for name in (*(broker_name(node_id) for node_id in range(1, BROKERS_COUNT + 1)), ZOOKEEPER, CLIENTS):
        network.add(name)
    return network


def _run(target: Target, plan: Sequence[str], pause_s: tuple[float, float], silence_ns_max: int) -> ClusterResult:
    cluster, clients = target.cluster, target.clients
    settings = {"segment.bytes": "65536", "min.insync.replicas": str(MIN_IN_SYNC)}
    with Cluster(cluster.bootstrap) as client:
        Admin(client).create_topic(TOPIC, PARTITIONS_COUNT, REPLICAS_COUNT, settings)
    cluster.wait_until_replicated()
    strikes: Counter[str] = Counter()
    evidence: list[str] = []
    try:
        clients.start()
        target.servability.begin(*ALL)
        for name in plan:
            _strike(name, {**ALL_FAULTS, **CONTROL_FAULTS}[name], target, strikes, evidence, clients.problems)
            time.sleep(target.random.uniform(*pause_s))
        # The quiet phase: everything must converge.
        converge(target)
        clients.expect_at_work()
        target.servability.end(*ALL)
        clients.finish()
    finally:
        clients.kill()
    converge(target)
    history = clients.history()
    final = read_finally(cluster.bootstrap, clients.partitions_count)
    report = check([*history, *final], clients.member_names, silence_ns_max=silence_ns_max)
    problems = clients.problems
    unsettled = report.figures["sends_unknown"] + report.figures["sends_failed"]
    if unsettled:
        problems.append(f"{unsettled} sends failed or were never settled: the application saw an error")
    return ClusterResult(
        report,
        strikes,
        evidence,
        longest_silence_s(history),
        records_of(history),
        unknown_commits(history),
        problems,
    )


def converge(target: Target) -> None:
    """A failure to converge is a problem, and the histories are judged all the same."""
    try:
        target.cluster.wait_until_replicated()
    except ClusterStateMissing as missing:
        target.clients.problems.append(f"{NOT_CONVERGED}: {missing}")


def _strike(
    name: str,
    fault: Fault,
    target: Target,
    strikes: Counter[str],
    evidence: list[str],
    problems: list[str],
) -> None:
    try:
        if name in SILENT_BROKER_FAULTS:
            target.servability.postpone(SOCKET_TIMEOUT_MS / 1000, *ALL)
        with target.servability.suspended(*_unserved(name, target)):
            evidence.append(fault(target))
            static_left_s = target.clients.static_session_left_s()
            if static_left_s > 0:
                target.servability.postpone(static_left_s, Served.GROUP)
        strikes[name] += 1
    except FaultWithoutEffect as void:
        problems.append(f"the run is void: {void}")


def _unserved(name: str, target: Target) -> Collection[Served]:
    """The clients that no replica can serve while this fault is active."""
    if name in HURTS_THE_GROUP:
        return [Served.GROUP]
    return [] if name in LEAVES_A_REPLICA and _bears_a_loss(target) else ALL


def _bears_a_loss(target: Target) -> bool:
    """Whether each partition keeps an in-sync replica without any one broker: the last fault may be just over."""
    try:
        topics = target.cluster.topics()
    except ClientError:
        return False
    return all(
        len(each.in_sync_replicas) > 1
        for topic in topics
        if topic.name in (TOPIC, OFFSETS_TOPIC)
        for each in topic.partitions.values()
    )


def unknown_commits(history: Iterable[Operation]) -> list[Commit]:
    return [each for each in settled_commits(history) if isinstance(each, Commit) and each.outcome is Outcome.UNKNOWN]


def described(commit: Commit) -> str:
    took_s = (commit.completed_ns - commit.invoked_ns) / 1e9
    error = commit.error or "its client ended"
    return (
        f"unknown commit of {commit.process}: partition {commit.partition} offset {commit.offset}"
        f" after {took_s:.2f} s: {error}"
    )


def records_of(history: Iterable[Operation]) -> Counter[str]:
    """How many, by process."""
    counts: Counter[str] = Counter()
    for operation in history:
        if is_acknowledged(operation):
            counts[operation.process] += 1
        elif isinstance(operation, Poll | Snapshot):
            counts[operation.process] += len(operation.records)
    return counts


def longest_silence_s(history: Iterable[Operation]) -> float:
    """The longest time between two acknowledgements of one partition."""
    times: dict[int, list[int]] = {}
    for operation in history:
        if is_acknowledged(operation):
            times.setdefault(operation.partition, []).append(operation.completed_ns)
    gaps = (later - earlier for each in times.values() for earlier, later in pairwise(sorted(each)))
    return max(gaps, default=0) / 1e9


def differences(broker_directories: Sequence[Path], partitions_count: int = PARTITIONS_COUNT) -> list[str]:
    """Partitions whose replicas are not the same, byte by byte: after a quiet end and a clean stop they are."""
    found = []
    for index in range(partitions_count):
        logs = [_bytes_of(directory / f"{TOPIC}-{index}") for directory in broker_directories]
        for directory, log in zip(broker_directories, logs, strict=True):
            if log != logs[0]:
                pairs = enumerate(zip(log, logs[0], strict=False))
                at = next((position for position, (a, b) in pairs if a != b), min(len(log), len(logs[0])))
                found.append(
                    f"{TOPIC}-{index}: {directory.name} {DIFFERS} {broker_directories[0].name} at byte {at} "
                    f"({len(log)} and {len(logs[0])} bytes)"
                )
    return found


def _bytes_of(partition_directory: Path) -> bytes:
    """All segments in offset order: their names are padded numbers."""
    return b"".join(path.read_bytes() for path in sorted(partition_directory.glob(f"*{LOG_SUFFIX}")))
