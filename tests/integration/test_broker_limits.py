"""A live broker with peers that request too much, read too little, or leave: bounded memory, service, clean stops."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
import uuid

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schemas.fetch import FetchResponse
from ottla.protocol.schemas.produce import ProduceResponse
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawPeer,
    connections_count,
    fetch_request,
    open_files,
    produce_frame,
    resident_bytes,
)

MIB = 1 << 20
# Far less than the ten minutes and the hour that the waiting requests would take.
STOPPED_WITHIN_S = 20
NEVER_FLUSHED = {"flush.policy": "interval", "flush.ms": "3600000", "retention.ms": "-1"}


def new_topic(broker: RunningBroker, **configs: str) -> str:
    name = f"limits-{uuid.uuid4().hex[:8]}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1, configs={"retention.ms": "-1"} | configs)
    return name


def produced(peer: RawPeer) -> tuple[int, ErrorCode, int]:
    """(correlation id, error, base offset) of the next answer to a produce."""
    correlation_id, response = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return correlation_id, ErrorCode(partition.error_code), partition.base_offset


def fetched(peer: RawPeer) -> tuple[ErrorCode, int]:
    """(error, bytes of records) of the next answer to a fetch."""
    _, response = peer.answer(ApiKey.FETCH, FETCH_VERSION)
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    (partition,) = topic.partitions
    return ErrorCode(partition.error_code), len(partition.records or b"")


def assert_serves(broker: RunningBroker, within_s: float = 10.0) -> None:
    """A new connection gets a response in time."""
    started_s = time.monotonic()
    with RawPeer(broker) as peer:
        peer.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("t", "1"))
        _, response = peer.answer(ApiKey.API_VERSIONS, 3)
        assert isinstance(response, ApiVersionsResponse)
    assert time.monotonic() - started_s < within_s


def wait_until_received(broker: RunningBroker) -> None:
    """Until the broker has read what was sent before this call: it was readable before the newcomer came."""
    assert_serves(broker)


def settled_files(broker: RunningBroker) -> int:
    """Files that the broker has open without a connection."""
    eventually(lambda: connections_count(broker), lambda count: count == 0)
    return open_files(broker)


def eventually_at_most(count: int, broker: RunningBroker) -> None:
    eventually(lambda: open_files(broker), lambda files: files <= count)


def test_ten_thousand_produces_are_answered_in_order_to_a_client_that_reads_late(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    with RawPeer(broker) as peer:
        before = resident_bytes(broker)
        peer.send(b"".join(produce_frame(topic, number) for number in range(10_000)))
        assert_serves(broker)
        assert resident_bytes(broker) - before < 32 * MIB
        for number in range(10_000):
            assert produced(peer) == (number, ErrorCode.NONE, number)


def test_broker_stops_reading_produces_when_the_client_reads_no_responses(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    with RawPeer(broker, receive_buffer_bytes=4096) as peer:
        before = resident_bytes(broker)
        peer.socket.settimeout(0.5)
        wave = b"".join(produce_frame(topic, number, index=9) for number in range(5_000))
        waves_count = 0
        with contextlib.suppress(TimeoutError):
            while waves_count < 1_000:
                peer.socket.sendall(wave)
                waves_count += 1
        assert waves_count < 1_000, "the broker took everything"
        assert_serves(broker)
        assert resident_bytes(broker) - before < 32 * MIB


def test_claimed_lengths_take_no_memory(broker: RunningBroker) -> None:
    before = resident_bytes(broker)
    peers = [RawPeer(broker) for _ in range(100)]
    for peer in peers:
        peer.send(struct.pack(">ihhi", 100 * MIB, 0, 7, 1) + bytes(1_000))
    assert_serves(broker)
    assert resident_bytes(broker) - before < 32 * MIB
    for peer in peers:
        peer.socket.close()


def test_clients_that_leave_within_a_request_leave_nothing(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    whole = produce_frame(topic, 1)
    assert_serves(broker)
    before = open_files(broker)
    for cut in range(1, len(whole), 3):
        with RawPeer(broker) as peer:
            peer.send(whole[:cut])
    for _ in range(50):
        with RawPeer(broker) as peer:
            peer.send(whole * 20)
    assert_serves(broker)
    eventually_at_most(before, broker)


def test_five_hundred_connections_are_served_and_forgotten(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    files, memory = open_files(broker), resident_bytes(broker)
    peers = [RawPeer(broker) for _ in range(500)]
    for number, peer in enumerate(peers):
        peer.send(produce_frame(topic, number))
    offsets = set()
    for number, peer in enumerate(peers):
        correlation_id, error, base_offset = produced(peer)
        assert (correlation_id, error) == (number, ErrorCode.NONE)
        offsets.add(base_offset)
    assert offsets == set(range(500))
    assert resident_bytes(broker) - memory < 80 * MIB
    for peer in peers:
        peer.socket.close()
    eventually_at_most(files + 3, broker)


def test_slow_readers_take_no_memory_and_delay_no_other_client(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    with RawPeer(broker) as producer:
        for number in range(40):
            producer.send(produce_frame(topic, number, value=bytes(900_000)))
            assert produced(producer)[1] == ErrorCode.NONE
    before = resident_bytes(broker)
    peers = [RawPeer(broker, receive_buffer_bytes=4096) for _ in range(50)]
    for peer in peers:
        peer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=0))
        assert peer.socket.recv(100)
    assert_serves(broker)
    assert resident_bytes(broker) - before < 32 * MIB
    with RawPeer(broker) as honest:
        honest.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=0))
        error, size_bytes = fetched(honest)
        assert error == ErrorCode.NONE
        assert size_bytes > 36_000_000
    for peer in peers:
        peer.socket.close()


def test_waiting_fetches_that_name_a_partition_very_often_take_bounded_memory(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    request = fetch_request(topic, 0, max_wait_ms=2**31 - 1)
    request.topics[0].partitions *= 190_000
    before = resident_bytes(broker)
    peers = [RawPeer(broker) for _ in range(8)]
    for peer in peers:
        peer.ask(ApiKey.FETCH, FETCH_VERSION, request)
    # Those above the bound are answered at once; the others hold some 300 bytes for each partition named.
    assert_serves(broker, within_s=60)
    assert resident_bytes(broker) - before < 700 * MIB
    for peer in peers:
        peer.socket.close()
    assert_serves(broker, within_s=60)
    with RawPeer(broker) as peer:
        peer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=100))
        assert fetched(peer) == (ErrorCode.NONE, 0)


def test_deleting_a_topic_answers_its_waiting_requests(broker: RunningBroker) -> None:
    topic = new_topic(broker, **NEVER_FLUSHED)
    with RawPeer(broker) as producer, RawPeer(broker) as consumer, Cluster(broker.bootstrap) as cluster:
        producer.send(produce_frame(topic, 1))
        consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=60_000))
        wait_until_received(broker)
        Admin(cluster).delete_topics([topic])
        assert produced(producer) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert fetched(consumer) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


def test_log_that_is_due_soon_is_flushed_in_time_beside_one_that_is_due_late(broker: RunningBroker) -> None:
    late, soon = new_topic(broker, **NEVER_FLUSHED), new_topic(broker, **NEVER_FLUSHED | {"flush.ms": "200"})
    with RawPeer(broker) as first, RawPeer(broker) as second:
        first.send(produce_frame(late, 1))
        wait_until_received(broker)
        second.send(produce_frame(soon, 2))
        assert produced(second) == (2, ErrorCode.NONE, 0)


def test_stop_answers_waiting_fetches_and_produces_without_waiting_for_their_time() -> None:
    with RunningBroker() as broker:
        topic, other = new_topic(broker, **NEVER_FLUSHED), new_topic(broker)
        with RawPeer(broker) as producer, RawPeer(broker) as consumer:
            producer.send(produce_frame(topic, 1))
            consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(other, 0, max_wait_ms=600_000))
            # A second one after it, which must not start.
            consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(other, 0, max_wait_ms=600_000))
            wait_until_received(broker)
            started_s = time.monotonic()
            assert broker.stop() == 0
            assert time.monotonic() - started_s < STOPPED_WITHIN_S
            assert produced(producer) == (1, ErrorCode.NONE, 0)
            assert fetched(consumer) == (ErrorCode.NONE, 0)
            assert consumer.is_closed_by_broker()
        assert not any("connections.cut" in line or " ERROR " in line for line in broker.log_lines)
        broker.start()
        with RawPeer(broker) as consumer:
            consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=100))
            error, size_bytes = fetched(consumer)
            assert error == ErrorCode.NONE
            assert size_bytes > 0


def test_stop_in_a_flood_of_produces_without_answers_is_clean() -> None:
    with RunningBroker() as broker:
        topic = new_topic(broker)
        flood = produce_frame(topic, 1, acks=0, value=bytes(1_000)) * 200
        for _ in range(3):
            peers = [RawPeer(broker) for _ in range(4)]
            for _ in range(5):
                for peer in peers:
                    peer.send(flood)
            assert broker.stop() == 0
            for peer in peers:
                peer.socket.close()
            assert (broker.data_dir / ".kafka_cleanshutdown").exists()
            broker.start()
        assert not any(" ERROR " in line or "Traceback" in line for line in broker.log_lines)


def test_closed_peer_is_noticed_when_requests_follow_its_parked_fetch(broker: RunningBroker) -> None:
    topic = new_topic(broker)
    before = settled_files(broker)
    with RawPeer(broker) as peer:
        for _ in range(3):
            peer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=600_000))
            wait_until_received(broker)
        eventually(lambda: open_files(broker), lambda files: files == before + 1)
    eventually(lambda: open_files(broker), lambda files: files == before)


def test_requests_that_trickle_keep_no_small_one_waiting_and_end() -> None:
    with RunningBroker(settings={"queued.max.request.bytes": str(8 * MIB)}) as broker, contextlib.ExitStack() as held:
        topic = new_topic(broker)
        peers = [held.enter_context(RawPeer(broker)) for _ in range(8)]
        for peer in peers:
            # Memory for the claimed bytes is taken as they arrive: each holds a megabyte, or waits for it.
            peer.send(struct.pack(">ihhi", 100 * MIB, 0, 7, 1) + bytes(600_000))
        honest = held.enter_context(RawPeer(broker))
        honest.send(produce_frame(topic, 1, value=bytes(900_000)))
        ended = threading.Event()
        trickle = threading.Thread(target=trickle_to, args=(peers, ended))
        trickle.start()
        try:
            assert produced(honest) == (1, ErrorCode.NONE, 0)
            # They wait for each other's memory: a connection that holds memory and makes no progress is closed.
            eventually(lambda: connections_count(broker), lambda count: count < len(peers))
        finally:
            ended.set()
            trickle.join()
        eventually(lambda: any("connection.slow" in line for line in broker.log_lines))


def trickle_to(peers: list[RawPeer], ended: threading.Event) -> None:
    """Send a byte of each request periodically, so that no connection is idle."""
    while not ended.wait(0.2):
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.send(b"x")
