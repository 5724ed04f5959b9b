"""One client uses all the group memory that it may use: another client still joins, consumes and commits."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer

from ottla.client.admin.admin import Admin
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer, connections_count

MIB = 1 << 20
# Any address of the loopback network: for the broker a different client from the tests' consumers.
OTHER_HOST = "127.0.0.9"
SESSION_MS = 30 * 60_000
# The memory for groups: all of it in `./dev suites`, an eighth in `./dev test`.
DIVISORS = {"whole": 1, "eighth": 8}
# Against all of the memory.  Joins are ever smaller, so that they fill the memory of all members to the last kilobytes:
# 136 MiB in all.
LARGE_JOINS_COUNT = 130
SMALLER_JOINS = [MIB >> shift for shift in range(1, 10)] * 2 + [1] * 40
# 100 partitions with 4,096 bytes of metadata each: 410 KB.  680 of them would take 266 MiB.
COMMITS_COUNT, COMMIT_PARTITIONS, COMMIT_METADATA = 680, 100, "m" * 4_096
# Long enough that no join completes before its connection closes.
SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "20000"}
JOIN_VERSION, COMMIT_VERSION = 3, 7
# On a machine under load; the time-outs of the flood are 30 minutes.
SECONDS_MAX = 90.0
MEMBERS_BYTES = 'ottla_group_memory_bytes{kind="members"}'
JOINS_AT_ONCE = 8
REFUSED = 'ottla_group_memory_refused_total{kind="members"}'


@pytest.fixture(scope="module", params=DIVISORS.values(), ids=[*DIVISORS])
def divisor(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def broker(divisor: int) -> Iterator[RunningBroker]:
    command = (sys.executable, "-m", "tests.integration.scarce_memory_broker", str(divisor))
    with RunningBroker(command=command, serves_metrics=True, settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("wide", COMMIT_PARTITIONS)
            Admin(cluster).create_topic("orders", 1)
        with RawPeer(broker) as peer:
            # Creates the groups' topic.
            peer.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["any"]))
            peer.answer(ApiKey.FIND_COORDINATOR, 4)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(SECONDS_MAX) == 0
        yield broker


def join(peer: RawPeer, number: int, metadata_bytes: int) -> None:
    protocols = [JoinGroupRequestProtocol("range", bytes(metadata_bytes))]
    request = JoinGroupRequest(f"flood-{number}", SESSION_MS, SESSION_MS, "", None, "consumer", protocols)
    peer.ask(ApiKey.JOIN_GROUP, JOIN_VERSION, request)


def assert_consumes_and_commits(broker: RunningBroker, group_id: str, protocol: str = "classic") -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group_id, "auto.offset.reset": "earliest"}
        | {"group.protocol": protocol, "enable.auto.commit": False}
    )
    try:
        consumer.subscribe(["orders"])
        record = consumer.poll(SECONDS_MAX)
        assert record is not None, f"nothing consumed in {SECONDS_MAX} s: {broker.log_lines[-5:]}"
        assert record.error() is None, record.error()
        assert record.value() == b"one"
        committed = (consumer.commit(asynchronous=False) or [])[0]
        assert committed.error is None, committed.error
    finally:
        consumer.close()


def sample(broker: RunningBroker, name: str) -> float:
    with urllib.request.urlopen(f"{broker.admin_url}/metrics", timeout=SECONDS_MAX) as response:
        found = re.search(f"^{re.escape(name)} (.*)$", response.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def _is_through(held_bytes: float, refused_count: float, seen: tuple[float, float]) -> bool:
    return seen[0] > held_bytes or seen[1] > refused_count


def flood(broker: RunningBroker, divisor: int, peers: ExitStack, source_host: str | None = None) -> int:
    """Joins until one is refused; a few at a time: when many large requests wait the broker closes connections.

    Returns the number of joins.
    """
    joins_bytes = [MIB - 1_000] * (LARGE_JOINS_COUNT // divisor) + SMALLER_JOINS
    refused_count, held_bytes = sample(broker, REFUSED), sample(broker, MEMBERS_BYTES)
    for number, metadata_bytes in enumerate(joins_bytes):
        join(peers.enter_context(RawPeer(broker, source_host=source_host)), number, metadata_bytes)
        if number % JOINS_AT_ONCE == JOINS_AT_ONCE - 1:
            eventually(
                lambda: (sample(broker, MEMBERS_BYTES), sample(broker, REFUSED)),
                partial(_is_through, held_bytes, refused_count),
                within_s=SECONDS_MAX,
            )
            held_bytes += JOINS_AT_ONCE * metadata_bytes // 2
    eventually(lambda: sample(broker, REFUSED) > refused_count, within_s=SECONDS_MAX)
    return len(joins_bytes)


def test_client_joins_after_a_flood_of_joins_whose_connections_are_closed(broker: RunningBroker, divisor: int) -> None:
    with ExitStack() as peers:
        flood(broker, divisor, peers)
    eventually(lambda: sample(broker, MEMBERS_BYTES) < MIB, within_s=SECONDS_MAX)
    assert_consumes_and_commits(broker, "after-closed")


def test_client_joins_beside_a_flood_of_joins_whose_connections_stay_open(broker: RunningBroker, divisor: int) -> None:
    with ExitStack() as peers:
        joins_count = flood(broker, divisor, peers, OTHER_HOST)
        assert_consumes_and_commits(broker, "beside-open")
        line = eventually(lambda: [line for line in broker.log_lines if "groups.members_full" in line])[-1]
        assert f"client_host=/{OTHER_HOST}" in line
        assert f"largest_client={OTHER_HOST}" in line
    eventually(lambda: connections_count(broker) < joins_count, within_s=SECONDS_MAX)


def commit_errors(peer: RawPeer, group_id: str, partitions: Sequence[int], metadata: str) -> set[int]:
    offsets = [OffsetCommitRequestPartition(index, 1, -1, metadata) for index in partitions]
    request = OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic("wide", offsets)])
    peer.ask(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, request)
    _, response = peer.answer(ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
    assert isinstance(response, OffsetCommitResponse)
    return {partition.error_code for topic in response.topics for partition in topic.partitions}


def test_client_commits_after_a_flood_of_commits_with_metadata(broker: RunningBroker, divisor: int) -> None:
    partitions, refused_from, commits_count = range(COMMIT_PARTITIONS), 0, COMMITS_COUNT // divisor
    with RawPeer(broker, source_host=OTHER_HOST) as peer:
        for number in range(commits_count):
            errors = commit_errors(peer, f"commits-{number}", partitions, COMMIT_METADATA)
            if errors != {ErrorCode.NONE}:
                assert errors == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
                refused_from = refused_from or number
        assert 0 < refused_from < commits_count
        # Its first generation does not wait for more members.
        assert_consumes_and_commits(broker, "after-commits", "consumer")
        (line, *_) = eventually(lambda: [line for line in broker.log_lines if "groups.offsets_full" in line])
        assert f"largest_client={OTHER_HOST}" in line
        # The advice of docs/operating.md.
        with Cluster(broker.bootstrap) as cluster:
            for number in range(refused_from // 2, refused_from):
                GroupAdmin(cluster).delete(f"commits-{number}")
        assert commit_errors(peer, "again", partitions, COMMIT_METADATA) == {ErrorCode.NONE}
