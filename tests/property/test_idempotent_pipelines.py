"""Pipelines of idempotent producers against three replicas, while leaders, leases and in-sync sets change.

The partitions and logs are real, on disks in memory; this module has the tree, the network and the producers.  Nothing
committed is lost here, so no batch may be refused as out of order, and each acknowledged record is stored once, in
the order in which it was sent.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

import pytest

from ottla.broker.partitions import sequence_gaps
from ottla.broker.partitions.partition import NO_WAIT, Partition
from ottla.broker.partitions.partition_read import ReplicaReader
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokerRegistration, BrokersView, LiveBroker
from ottla.coordination.topics_view import PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.records.builder import build_batch
from ottla.records.header import HEADER
from ottla.records.record import Record, decode_batch, split_batches
from ottla.replication.following import FollowerStep
from ottla.runtime.offload import INLINE, run_inline
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.unit.broker.leader_answers import NO_RECORDS, fetched
from tests.unit.broker.served_log import MANY_BYTES, ServedLog

NODES: Final = (NodeId(1), NodeId(2), NodeId(3))
IN_FLIGHT_MAX: Final = 5
BATCH_RECORDS_MAX: Final = 3
STEPS: Final = 1_500
SEEDS: Final = range(16)
PRODUCERS_MAX: Final = 4


class Cluster:
    """Three replicas of one partition, and its state in the tree."""

    def __init__(self) -> None:
        config = LogConfig(min_insync_replicas=2, segment_bytes=2_000)
        self.served = {node: ServedLog("t", leader_epoch=None, config=config) for node in NODES}
        self.partitions = {node: Partition(self.served[node].log, node) for node in NODES}
        self.has_lease = dict.fromkeys(NODES, True)
        self.leader, self.epoch, self.version = NODES[0], 0, 0
        self.in_sync: tuple[NodeId, ...] = NODES
        live = BrokersView(1, {node: LiveBroker(BrokerRegistration(node, ()), 10 * node) for node in NODES})
        self.lifecycles = {node: BrokerLifecycle(node) for node in NODES}
        for node, membership in self.lifecycles.items():
            membership.saw(live)
            membership.registered(10 * node)
        self.publish()

    @property
    def now_ms(self) -> int:
        return self.served[NODES[0]].clock.now_ms()

    def advance(self, duration_ms: int) -> None:
        for served in self.served.values():
            served.clock.advance(duration_ms)

    def publish(self, *nodes: NodeId) -> None:
        members = tuple(ReplicaIncarnation(node, 10 * node) for node in self.in_sync)
        state = PartitionState(self.leader, LeaderEpoch(self.epoch), members)
        for node in nodes or NODES:
            seen = PartitionNode(0, NODES, state, self.version)
            self.partitions[node].on_state(seen, self.lifecycles[node], self.now_ms)

    def elect(self, leader: NodeId) -> None:
        """The next leader has all committed records: only full in-sync sets change their leader here."""
        if self.in_sync == NODES:
            self.leader, self.epoch, self.version = leader, self.epoch + 1, self.version + 1
            self.publish()

    def shrink(self) -> None:
        """Below `min.insync.replicas`."""
        self.in_sync, self.version = (self.leader,), self.version + 1
        self.publish()

    def grow(self) -> None:
        for _ in range(3):
            self.replicate()
        self.in_sync, self.version = NODES, self.version + 1
        self.publish()

    def replicate(self, *followers: NodeId) -> None:
        """Each of these followers fetches until it has caught up."""
        self.served[self.leader].become_stable()
        for node in followers or NODES:
            while node != self.leader and self._fetch(node):
                self.served[node].become_stable()

    def _fetch(self, node: NodeId) -> bool:
        follower, leader = self.partitions[node], self.partitions[self.leader]
        self.served[node].become_stable()
        fetch = follower.follower_log.next_fetch()
        if fetch is None:
            return False
        before = follower.log_end_offset
        reader = ReplicaReader(node, 10 * node, self.now_ms)
        read = leader.read_as_replica(
            reader, fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, MANY_BYTES, whole_first_batch=True
        )
        run = read.run
        answer = fetched(
            NO_RECORDS if run is None else memoryview(run.file.read_at(run.position, run.length_bytes)),
            code=read.error_code,
            high_watermark=read.high_watermark,
            log_start=read.log_start_offset,
            diverging=read.diverging,
        )
        step = follower.follower_log.apply_fetched(fetch.request_id, answer, self.now_ms)
        if isinstance(step, FollowerStep):
            run_inline(follower.follower_log.cut(step, INLINE))
        return follower.log_end_offset != before

    def values(self) -> list[str]:
        """All committed values, from the leader's log."""
        found = []
        log, offset = self.served[self.leader].log, 0
        while (run := log.read(offset, log.log_end_offset, MANY_BYTES, whole_first_batch=True)) is not None:
            for batch in split_batches(memoryview(run.file.read_at(run.position, run.length_bytes))):
                records = list(decode_batch(batch))
                found += [bytes(record.value or b"").decode() for record in records]
                offset = records[-1].offset + 1
        return found


class Request:
    """One batch in flight; its answer is 0 or an error code.  A `ParkedProduce` of the partition."""

    def __init__(self, producer: Producer, sequence: int, values: list[str]) -> None:
        self.producer = producer
        self.sequence = sequence
        self.values = values
        self.is_handled = False
        self.answer: int | None = None

    def again(self) -> Request:
        """The same batch as a new request."""
        return Request(self.producer, self.sequence, self.values)

    def release(self, _: int) -> None:
        self.answer = 0

    def fail(self, _: int, error_code: int) -> None:
        self.answer = error_code

    def is_expired(self, _: int) -> bool:
        return False

    def expire(self) -> None:
        raise AssertionError("no request expires here")

    def handle(self, cluster: Cluster, node: NodeId) -> None:
        """Handle it like the produce handler."""
        self.is_handled = True
        partition, now_ms = cluster.partitions[node], cluster.now_ms
        if not cluster.has_lease[node]:
            partition.on_refused(now_ms)
            self.answer = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        records = [Record(number, now_ms, None, value.encode()) for number, value in enumerate(self.values)]
        batch = build_batch(
            records, producer_id=self.producer.producer_id, producer_epoch=0, base_sequence=self.sequence
        )
        try:
            _, required_end, _ = partition.append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, now_ms)
        except OttlaError as error:
            self.answer = error.error_code
            return
        if required_end == NO_WAIT:
            self.answer = 0
        else:
            partition.waiting.park_produce(required_end, ACKS_ALL, self, 0)


class Producer:
    """As librdkafka: up to five requests in flight, no new one before a failed pipeline is drained, batches that were
    sent once keep their records, and an acknowledgement covers all earlier ones."""

    def __init__(self, producer_id: int, leader: NodeId) -> None:
        self.producer_id = producer_id
        self.node = leader
        self.in_flight: deque[Request] = deque()
        self.to_retry: list[Request] = []
        self.is_draining = False
        self.sequence = 0
        self.acknowledged: list[str] = []
        self.out_of_order_count = 0

    def send(self, rng: random.Random) -> None:
        if not self.in_flight:
            self.is_draining = False
        if self.is_draining or len(self.in_flight) == IN_FLIGHT_MAX:
            return
        if self.to_retry:
            self.in_flight.append(self.to_retry.pop(0).again())
            return
        count = rng.randint(1, BATCH_RECORDS_MAX)
        values = [f"{self.producer_id}:{number}" for number in range(self.sequence, self.sequence + count)]
        self.in_flight.append(Request(self, self.sequence, values))
        self.sequence += count

    def receive(self) -> None:
        """The answer to the oldest request, if there is one."""
        if not self.in_flight or self.in_flight[0].answer is None:
            return
        request = self.in_flight.popleft()
        if request.answer == 0:
            self.acknowledged += request.values
            while self.to_retry and self.to_retry[0].sequence < request.sequence:
                self.acknowledged += self.to_retry.pop(0).values
            return
        self.out_of_order_count += request.answer == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._retry(request)

    def disconnect(self, node: NodeId) -> None:
        """Requests and responses in flight are lost, and the next connection goes to `node`."""
        while self.in_flight:
            self._retry(self.in_flight.popleft())
        self.node = node

    def _retry(self, request: Request) -> None:
        self.is_draining = True
        self.to_retry = sorted([*self.to_retry, request], key=lambda each: each.sequence)


def ran(seed: int) -> tuple[Cluster, list[Producer]]:
    """A run of random steps, and then a quiet end in which everything is settled."""
    rng = random.Random(seed)
    cluster = Cluster()
    producers = [Producer(1, cluster.leader)]
    for _ in range(STEPS):
        producer = rng.choice(producers)
        match rng.choices(
            (
                "send",
                "handle",
                "receive",
                "replicate",
                "lapse",
                "lease",
                "elect",
                "shrink",
                "grow",
                "connect",
                "new",
                "time",
            ),
            (30, 30, 30, 20, 1, 6, 1, 1, 6, 4, 1, 3),
        )[0]:
            case "send":
                producer.send(rng)
            case "handle":
                handle_next(producer, cluster)
            case "receive":
                producer.receive()
            case "replicate":
                cluster.replicate(rng.choice(NODES))
            case "lapse":
                cluster.has_lease[cluster.leader] = False
            case "lease":
                cluster.has_lease[cluster.leader] = True
            case "elect":
                cluster.elect(rng.choice(NODES))
            case "shrink":
                cluster.shrink()
            case "grow":
                cluster.grow()
            case "connect":
                producer.disconnect(rng.choice((*NODES, cluster.leader, cluster.leader)))
            case "new" if len(producers) < PRODUCERS_MAX:
                producers.append(Producer(len(producers) + 1, cluster.leader))
            case "time":
                cluster.advance(rng.randint(1, 100))
    cluster.grow()
    cluster.has_lease = dict.fromkeys(NODES, True)
    for producer in producers:
        producer.disconnect(cluster.leader)
        producer.is_draining = False
        for _ in range(10 * STEPS):
            if not producer.to_retry and not producer.in_flight:
                break
            if producer.to_retry:
                producer.send(rng)
            handle_next(producer, cluster)
            cluster.replicate()
            cluster.replicate()
            producer.receive()
    return cluster, producers


def handle_next(producer: Producer, cluster: Cluster) -> None:
    """The broker handles its oldest pending request; requests of one connection keep their order."""
    request = next((request for request in producer.in_flight if not request.is_handled), None)
    if request is not None:
        request.handle(cluster, producer.node)


def anomalies(seed: int) -> list[str]:
    cluster, producers = ran(seed)
    values = cluster.values()
    found = []
    if len(set(values)) != len(values):
        found.append("stored twice")
    for producer in producers:
        own = [value for value in values if value.startswith(f"{producer.producer_id}:")]
        if own != [f"{producer.producer_id}:{number}" for number in range(len(own))]:
            found.append("order or gap")
        if set(producer.acknowledged) - set(own):
            found.append("acknowledged and lost")
        if producer.out_of_order_count:
            found.append("refused as out of order")
        if producer.to_retry or producer.in_flight:
            found.append("never settled")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelines_are_stored_once_and_in_order_and_never_refused_as_out_of_order(seed: int) -> None:
    assert anomalies(seed) == []


def test_runs_acknowledge_records_and_truncate_logs() -> None:
    runs = [ran(seed) for seed in SEEDS]
    assert sum(len(producer.acknowledged) for _, producers in runs for producer in producers) > 1_000
    assert sum(served.log.truncations_count for cluster, _ in runs for served in cluster.served.values()) > 10


def test_run_without_patience_refuses_batches_as_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_gaps, "GAP_PATIENCE_MS", 0)
    assert any("refused as out of order" in anomalies(seed) for seed in SEEDS)


def test_run_loses_acknowledged_records_when_unknown_producers_may_start_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Log, "expect_beginnings", lambda *_: None)
    assert any("acknowledged and lost" in anomalies(seed) for seed in SEEDS)
