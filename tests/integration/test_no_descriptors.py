"""A live broker whose limit of open files is low: hundreds of partitions in one produce, and a moment without any."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker import RunningBroker
from tests.integration.raw_peer import PRODUCE_VERSION, RawPeer, open_files

# Each partition has one file open, its active segment: twice as many would be more than the limit.
PARTITIONS_COUNT = 350
OPEN_FILES_MAX = 420
LIMITED = ("sh", "-c", f'ulimit -n {OPEN_FILES_MAX}; exec "$0" "$@"', sys.executable, "-m", "ottla")
WITHIN_S = 60


def produce_to_all(peer: RawPeer) -> Counter[tuple[ErrorCode, int]]:
    """How often each (error, base offset) was answered to one produce with a batch for every partition."""
    batch = build_batch([Record(0, 1_767_225_600_000, None, b"v")])
    data = [PartitionProduceData(index, batch) for index in range(PARTITIONS_COUNT)]
    peer.ask(ApiKey.PRODUCE, PRODUCE_VERSION, ProduceRequest(None, -1, 30_000, [TopicProduceData("wide", data)]))
    _, response = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    [topic] = response.responses
    return Counter((ErrorCode(each.error_code), each.base_offset) for each in topic.partition_responses)


def create_topic(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("wide", PARTITIONS_COUNT, configs={"retention.ms": "-1"})


def test_first_produce_to_hundreds_of_partitions_needs_no_further_files() -> None:
    with RunningBroker(command=LIMITED) as broker:
        create_topic(broker)
        with RawPeer(broker) as peer:
            for offset in range(2):
                assert produce_to_all(peer) == {(ErrorCode.NONE, offset): PARTITIONS_COUNT}
        assert not [line for line in broker.log_lines if "offline" in line]


def test_produce_is_refused_while_no_file_can_be_opened_and_recovers_automatically() -> None:
    with RunningBroker(command=LIMITED) as broker:
        create_topic(broker)
        with RawPeer(broker) as peer, ExitStack() as idle:
            deadline_s = time.monotonic() + WITHIN_S
            while open_files(broker) < OPEN_FILES_MAX:
                assert time.monotonic() < deadline_s, "connections do not use up the descriptors"
                idle.enter_context(RawPeer(broker))
            refused = produce_to_all(peer)
            assert refused == {(ErrorCode.KAFKA_STORAGE_ERROR, -1): PARTITIONS_COUNT}
            idle.close()
            while (ErrorCode.KAFKA_STORAGE_ERROR, -1) in (answered := produce_to_all(peer)):
                assert time.monotonic() < deadline_s, answered
            assert {error for error, _ in answered} == {ErrorCode.NONE}
        assert not [line for line in broker.log_lines if "offline" in line]
        assert broker.stop() == 0
        broker.start()
        with RawPeer(broker) as peer:
            assert {error for error, _ in produce_to_all(peer)} == {ErrorCode.NONE}
