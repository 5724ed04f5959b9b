"""Three brokers, producers of inputs, workers that transform them in transactions, readers, and faults.

A run that is not clean keeps its directory: histories, clients' outputs, the logs of all processes, and all data.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.fetching.offsets import LATEST, IsolationLevel, list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import ClusterStateMissing, RunningCluster
from tests.cluster.apache_cluster import ApacheCluster
from tests.cluster.chaos_run import (
    BROKERS_COUNT,
    CLUSTER_SETTINGS,
    LINES_SHOWN,
    PLAIN_COMMAND,
    REPLICAS_COUNT,
    converge,
    new_cluster,
)
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.network import Network
from tests.cluster.servability import Servability
from tests.cluster.site import CLIENTS, ZOOKEEPER, Site, broker_name
from tests.cluster.target import MIN_IN_SYNC, Fault, Target
from tests.eventually import eventually
from tests.history import checker as inputs_checker
from tests.history.clients import (
    DRAIN_S,
    GROUP,
    LIBRDKAFKA,
    PARTITIONS_COUNT,
    TOPIC,
    HistoryClients,
    MemberKind,
    ReaderKind,
    read_finally,
)
from tests.history.operations import Committed, LastStableOffset, Operation, Outcome, Transaction
from tests.history.recorder import now_ns
from tests.history.report import Report as InputsReport
from tests.history.workload import BROKER_LOG, SETTINGS
from tests.transactions_history.checker import FINAL_READER, check
from tests.transactions_history.reading_librdkafka import committed_reads
from tests.transactions_history.report import Report
from tests.transactions_history.worker import TIMEOUTS_MS, results_topic

POWER_CUT: Final = "power-cut-"
PAUSE_S: Final = (0.2, 4.0)
SHORT_PAUSE_S: Final = (0.1, 1.0)
# The longest time-out of a transaction, and the time until the coordinator sees it and markers arrive.
STABLE_WITHIN_S: Final = max(TIMEOUTS_MS) / 1000 + 70.0
RESULTS: Final = results_topic(TOPIC)
# Of inputs, some hundred a second.
PRODUCERS: Final = (LIBRDKAFKA,)
# Of Apache Kafka.  Sessions of brokers keep its default, 9 s: a heartbeat has as little time as its interval, and on a
# busy machine brokers with short ones are fenced all the time.
APACHE_PROPERTIES: Final[Mapping[str, str]] = {
    "replica.lag.time.max.ms": "3000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
# Where a run has power cuts: otherwise Apache Kafka leaves flushing to the operating system.
APACHE_FLUSHES: Final[Mapping[str, str]] = {"log.flush.interval.messages": "1"}
# Apache Kafka's smallest.
APACHE_SEGMENT_BYTES: Final = "1048576"
SEGMENT_BYTES: Final = "65536"


@dataclass
class TransactionsResult:
    """The checkers' verdicts, and the other observations."""

    report: Report
    inputs: InputsReport
    strikes: Counter[str]
    evidence: list[str]
    problems: list[str] = field(default_factory=list)
    kept_directory: Path | None = None
    last_lines: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return self.report.is_clean and self.inputs.is_clean and not self.problems

    def __str__(self) -> str:
        lines = [
            " ".join(f"{name}={count}" for name, count in sorted(self.strikes.items())),
            str(self.report),
            f"inputs: {self.inputs}" if not self.inputs.is_clean else "inputs: ok",
            *self.problems,
        ]
        if self.kept_directory is not None:
            lines += [*self.evidence, *self.last_lines, f"all files of this run are kept in {self.kept_directory}"]
        return "\n".join(lines)


def run_transactions(
    kinds: Sequence[MemberKind],
    readers: Sequence[ReaderKind],
    faults: Mapping[str, Fault],
    plan: Sequence[str],
    *,
    seed: int,
    network: Network | None = None,
    is_apache: bool = False,
    command: Sequence[str] = PLAIN_COMMAND,
    pause_s: tuple[float, float] = PAUSE_S,
) -> TransactionsResult:
    """A fresh cluster, clients, the faults of `plan` with pauses between them, and the verdict.

    With a `network` each process has its namespace there, and each broker its own disk.
    """
    directory = Path(tempfile.mkdtemp(prefix="ottla-transactions-"))
    cluster_directory = directory / "cluster"
    with ExitStack() as stack:
        site: Site | None = None
        cluster: RunningCluster | None = None
        if network is not None:
            node_ids = range(1, BROKERS_COUNT + 1)
            site = stack.enter_context(Site(network, directory / "disks", cluster_directory, node_ids))
        try:
            if is_apache:
                flushes = APACHE_FLUSHES if any(name.startswith(POWER_CUT) for name in plan) else {}
                cluster = _apache_cluster(cluster_directory, network, {**APACHE_PROPERTIES, **flushes})
            else:
                cluster = new_cluster(cluster_directory, network, None, command, CLUSTER_SETTINGS)
            with cluster:
                if site is not None:
                    _sync(site)
                enter = () if network is None else network.place(CLIENTS).enter
                clients = HistoryClients(cluster.bootstrap, kinds, seed, directory, PRODUCERS, enter, readers)
                target = Target(cluster, clients, random.Random(seed), Servability(clients.note_servable), site)
                segment_bytes = APACHE_SEGMENT_BYTES if is_apache else SEGMENT_BYTES
                settings = {"segment.bytes": segment_bytes, "min.insync.replicas": str(MIN_IN_SYNC)}
                # On a busy machine a broker may lose its session in the meantime.
                make = partial(_make_topics, cluster.bootstrap, REPLICAS_COUNT, settings)
                cluster.wait_for("the topics", make, bool)
                result = _run(target, faults, plan, pause_s)
        except BaseException as error:
            lines = [] if cluster is None else cluster.last_lines(LINES_SHOWN)
            error.add_note("\n".join([*lines, f"all files of this run are kept in {directory}"]))
            if site is not None:
                site.keep(directory)
            raise
        if not result.is_clean:
            result.kept_directory, result.last_lines = directory, cluster.last_lines(LINES_SHOWN)
            if site is not None:
                site.keep(directory)
    if result.is_clean:
        shutil.rmtree(directory)
    return result


def _apache_cluster(directory: Path, network: Network | None, properties: Mapping[str, str]) -> ApacheCluster:
    assert network is not None, "brokers of Apache Kafka have the same port, each in its namespace"
    places = [network.place(broker_name(node_id)) for node_id in range(1, BROKERS_COUNT + 1)]
    return ApacheCluster(directory, places, network.place(ZOOKEEPER), properties)


def _sync(site: Site) -> None:
    """What a broker is given before its first start was not written by a broker: a power cut must not lose it."""
    for disk in site.disks.values():
        subprocess.run(["sync", "-f", str(disk.mount_point)], check=True)


def run_on_one_broker(
    kinds: Sequence[MemberKind],
    readers: Sequence[ReaderKind],
    kills_count: int,
    *,
    seed: int,
    command: Sequence[str] = PLAIN_COMMAND,
) -> TransactionsResult:
    """One broker without a ZooKeeper that is killed so many times under load: no minute to start, and no elections."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-transactions-"))
    chance = random.Random(seed)
    broker = RunningBroker(directory / "data", settings=SETTINGS, command=command)
    try:
        with broker:
            clients = HistoryClients(broker.bootstrap, kinds, seed, directory, PRODUCERS, readers=readers)
            _make_topics(broker.bootstrap, 1, {"segment.bytes": SEGMENT_BYTES})
            with _at_work(clients):
                for _ in range(kills_count):
                    broker.kill()
                    broker.start()
                    time.sleep(chance.uniform(*SHORT_PAUSE_S))
            strikes = Counter({"kill-broker": kills_count})
            result = TransactionsResult(*_judged(broker.bootstrap, clients), strikes, [], clients.problems)
    except BaseException as error:
        error.add_note(f"all files of this run are kept in {directory}")
        raise
    finally:
        (directory / BROKER_LOG).write_text("\n".join(broker.log_lines))
    if result.is_clean:
        shutil.rmtree(directory)
    else:
        result.kept_directory, result.last_lines = directory, broker.log_lines[-LINES_SHOWN:]
    return result


def _make_topics(bootstrap: str, replicas_count: int, settings: Mapping[str, str]) -> bool:
    """Those that are missing; raises `ClientError` where one cannot be made now."""
    with Cluster(bootstrap) as client:
        admin = Admin(client)
        for topic in {TOPIC, RESULTS} - {each.name for each in admin.list_topics()}:
            admin.create_topic(topic, PARTITIONS_COUNT, replicas_count, settings)
    return True


def _run(
    target: Target, faults: Mapping[str, Fault], plan: Sequence[str], pause_s: tuple[float, float]
) -> TransactionsResult:
    cluster, clients = target.cluster, target.clients
    cluster.wait_until_replicated()
    strikes: Counter[str] = Counter()
    evidence: list[str] = []
    with _at_work(clients):
        for name in plan:
            try:
                evidence.append(faults[name](target))
                strikes[name] += 1
            except FaultWithoutEffect as void:
                clients.problems.append(f"the run is void: {void}")
            except ClusterStateMissing as missing:
                # What the clients saw is judged all the same.
                clients.problems.append(f"{name}: {str(missing).splitlines()[0]}")
                cluster.start()
            time.sleep(target.random.uniform(*pause_s))
        converge(target)
    converge(target)
    return TransactionsResult(*_judged(cluster.bootstrap, clients), strikes, evidence, clients.problems)


@contextmanager
def _at_work(clients: HistoryClients) -> Iterator[None]:
    """Clients that work, and do again after the faults, and have ended then."""
    try:
        clients.start()
        _expect_commits(clients)
        yield
        clients.expect_at_work()
        _expect_commits(clients)
        clients.finish()
    finally:
        clients.kill()


def _judged(bootstrap: str, clients: HistoryClients) -> tuple[Report, InputsReport]:
    stable = _wait_until_stable(bootstrap, clients.problems)
    history = [*clients.history(), *stable, *_read_to(bootstrap, stable, clients.problems)]
    return check(history), inputs_checker.check([*history, *read_finally(bootstrap)])


def _expect_commits(clients: HistoryClients) -> None:
    """Each worker that runs commits a transaction that it starts from now on."""
    since_ns = now_ns()

    def idle() -> set[str]:
        committing = {
            each.process
            for each in clients.history()
            if isinstance(each, Transaction) and each.outcome is Outcome.OK and each.invoked_ns > since_ns
        }
        return {name for name in clients.running_members() if name not in committing}

    try:
        eventually(idle, lambda names: not names, within_s=DRAIN_S, every_s=0.5)
    except AssertionError as late:
        clients.problems.append(f"workers that committed nothing: {late}")


def _wait_until_stable(bootstrap: str, problems: list[str]) -> list[LastStableOffset]:
    """Wait until the last stable offset of each partition is its high watermark; returns those of the results."""
    with Cluster(bootstrap) as client:
        counts = {topic.name: len(topic.partitions) for topic in Admin(client).list_topics()}
    wanted = {
        TopicPartition(topic, partition): LATEST
        for topic in (RESULTS, OFFSETS_TOPIC)
        for partition in range(counts.get(topic, 0))
    }
    found: dict[TopicPartition, LastStableOffset] = {}

    def open_partitions() -> list[str]:
        invoked_ns = now_ns()
        try:
            with Cluster(bootstrap) as client:
                stable = list_offsets(client, wanted, isolation=IsolationLevel.READ_COMMITTED)
                ends = list_offsets(client, wanted)
        except ClientError as error:
            return [str(error)]
        completed_ns = now_ns()
        for each, answer in stable.items():
            found[each] = LastStableOffset(
                FINAL_READER, invoked_ns, completed_ns, each.partition, answer.offset, ends[each].offset
            )
        return [str(each) for each, at in found.items() if at.offset != at.high_watermark]

    try:
        eventually(open_partitions, lambda names: not names, within_s=STABLE_WITHIN_S, every_s=0.5)
    except AssertionError as late:
        problems.append(f"transactions stay open: {late}")
    return [at for each, at in found.items() if each.topic == RESULTS]


def _read_to(bootstrap: str, stable: Sequence[LastStableOffset], problems: list[str]) -> list[Operation]:
    """All committed results, and the committed offsets."""
    ends = {each.partition: each.offset for each in stable}
    give_up_s = time.monotonic() + DRAIN_S

    def is_over(reached: Mapping[int, int]) -> bool:
        return time.monotonic() > give_up_s or all(reached[partition] >= end for partition, end in ends.items())

    reads: list[Operation] = [*committed_reads(FINAL_READER, bootstrap, TOPIC, PARTITIONS_COUNT, is_over)]
    if time.monotonic() > give_up_s:
        problems.append(f"the results were not read to their ends {ends} in {DRAIN_S:.0f} s")
    invoked_ns = now_ns()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed"})
    try:
        found = consumer.committed([KafkaTopicPartition(TOPIC, each) for each in range(PARTITIONS_COUNT)], DRAIN_S)
    finally:
        consumer.close()
    offsets = [
        Committed(
            FINAL_READER, invoked_ns, now_ns(), each.partition, -1 if each.offset == OFFSET_INVALID else each.offset
        )
        for each in found
        if each.error is None
    ]
    if len(offsets) < PARTITIONS_COUNT:
        problems.append(f"committed offsets could not be read: {[each.error for each in found]}")
    return [*reads, *offsets]
