"""The benchmark's raw client against Apache Kafka: its requests are valid, and its counts are correct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.raw_client.build import NoRawClient, build_raw_client
from bench.raw_client.load import FetchLoad, LoadFailed, ProduceLoad, TransactionLoad, put_load
from bench.tls.peers import Keys
from bench.wire import Wire

from ottla.testing.broker import RunningBroker
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.java_tool import CONSOLE_CONSUMER, DUMP_LOG_SEGMENTS, run_tool

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", autouse=True)
def raw_client() -> None:
    try:
        build_raw_client()
    except NoRawClient as reason:
        pytest.skip(str(reason))


@pytest.fixture
def wire(kafka: ApacheKafka) -> Iterator[Wire]:
    with Wire(kafka.port) as connection:
        yield connection


@pytest.mark.parametrize(("batch_records", "requests"), [(1, 20), (50, 12), (4000, 6)])
def test_records_of_the_raw_client_are_read_whole_by_the_console_consumer(
    kafka: ApacheKafka, wire: Wire, batch_records: int, requests: int
) -> None:
    topic = f"read-{batch_records}"
    wire.create_topic(topic, 3)
    load = ProduceLoad(batch_records, in_flight=4, partitions=3, requests=requests)
    result = put_load(load, kafka.port, topic)
    expected = batch_records * requests
    assert (result.requests, result.records, result.records_total) == (requests, expected, expected)
    assert sum(end or 0 for end in wire.end_offsets(topic, 3).values()) == expected

    arguments = ("--topic", topic, "--from-beginning", "--max-messages", str(expected), "--timeout-ms", "20000")
    done = run_tool(CONSOLE_CONSUMER, "--bootstrap-server", kafka.bootstrap, *arguments)
    lines = done.stdout.splitlines()
    assert len(lines) == expected, done.stderr
    assert {len(line) for line in lines} == {200}
    assert len(set(lines)) == batch_records, "each request carries the same batch of different records"


def test_batches_of_the_raw_client_are_valid_in_the_segment(kafka: ApacheKafka, wire: Wire) -> None:
    wire.create_topic("dumped", 1)
    put_load(ProduceLoad(50, in_flight=2, requests=10), kafka.port, "dumped")
    segment = kafka.data_dir / "dumped-0" / "00000000000000000000.log"
    dump = run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", str(segment)).stdout
    assert dump.count("isvalid: true") == 10
    assert "isvalid: false" not in dump
    assert dump.count("| offset: ") == 500


def test_fetch_reads_the_topic_again_and_again_below_its_limit(kafka: ApacheKafka, wire: Wire) -> None:
    wire.create_topic("fetched", 1)
    put_load(ProduceLoad(50, in_flight=2, requests=20), kafka.port, "fetched")
    result = put_load(FetchLoad(64 << 10, seconds=0.3, warmup_s=0), kafka.port, "fetched")
    # 20 batches of some 10.7 kB: six fit into 64 KiB, the seventh is cut off and left out, so a pass takes 4 answers.
    passes = result.requests / 4
    assert passes > 2
    assert result.records == pytest.approx(passes * 1000, rel=0.5)
    assert result.bytes / result.requests < 64 << 10


def test_transactions_of_the_raw_client_are_committed(kafka: ApacheKafka, wire: Wire) -> None:
    wire.create_topic("committed", 2)
    result = put_load(TransactionLoad(records=3, producers=2, partitions=2, requests=20), kafka.port, "committed")
    assert (result.requests_total, result.records_total) == (20, 60)
    arguments = ("--topic", "committed", "--from-beginning", "--max-messages", "60", "--timeout-ms", "20000")
    committed = ("--isolation-level", "read_committed")
    done = run_tool(CONSOLE_CONSUMER, "--bootstrap-server", kafka.bootstrap, *arguments, *committed)
    assert len(done.stdout.splitlines()) == 60, done.stderr
    read = put_load(FetchLoad(1 << 20, seconds=0.3, warmup_s=0, is_committed=True), kafka.port, "committed")
    assert read.records > 0


def test_error_code_of_the_broker_is_a_failure(kafka: ApacheKafka, wire: Wire) -> None:
    wire.create_topic("narrow", 1)
    with pytest.raises(LoadFailed, match=r"error codes \{'3': "):
        put_load(ProduceLoad(1, in_flight=1, partitions=2, requests=10), kafka.port, "narrow")


def test_topic_is_gone_after_its_deletion(wire: Wire) -> None:
    wire.create_topic("short-lived", 2)
    assert [state.error_code for state in wire.partitions("short-lived")] == [0, 0]
    wire.delete_topic("short-lived")
    assert wire.partitions("short-lived") == []


def test_clients_write_to_their_own_partition_or_to_those_of_their_broker(kafka: ApacheKafka, wire: Wire) -> None:
    wire.create_topic("owned", 3)
    ports = wire.leader_ports("owned")
    assert ports == (kafka.port,) * 3
    # How many each client sends depends on which answers come first; their sum does not.
    put_load(ProduceLoad(1, 2, 3, requests=12, connections=3, leader_ports=ports), kafka.port, "owned")
    ends = wire.end_offsets("owned", 3)
    assert sum(end or 0 for end in ends.values()) == 12
    assert all(ends.values()), "each client has written to its partition"
    put_load(ProduceLoad(1, 2, 3, requests=6, connections=1, leader_ports=ports), kafka.port, "owned")
    assert wire.end_offsets("owned", 3) == {index: (end or 0) + 2 for index, end in ends.items()}, "in turn"
    wire.grow_topic("owned", 5)
    assert wire.leader_ports("owned") == (kafka.port,) * 5


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Keys]]:
    try:
        build_raw_client(with_tls=True)
    except NoRawClient as reason:
        pytest.skip(str(reason))
    keys = Keys.made_in(tmp_path_factory.mktemp("keys"))
    with RunningBroker(settings=keys.settings, also_listen=["SSL://127.0.0.1:0"]) as broker:
        yield broker, keys


def test_raw_client_produces_and_fetches_with_tls(tls_broker: tuple[RunningBroker, Keys]) -> None:
    broker, keys = tls_broker
    tls_port = int(broker.addresses["SSL"].rpartition(":")[2])
    with Wire(broker.port) as wire:
        wire.create_topic("encrypted", 1)
        for batch_records, requests in ((1, 300), (4000, 12)):
            load = ProduceLoad(batch_records, in_flight=100, requests=requests)
            assert put_load(load, tls_port, "encrypted", ca=keys.ca).records_total == batch_records * requests
        assert wire.end_offsets("encrypted", 1) == {0: 300 + 12 * 4000}
    result = put_load(FetchLoad(1 << 20, seconds=0.5, warmup_s=0), tls_port, "encrypted", ca=keys.ca)
    assert result.records_total > 300, "batches of both sizes are read"


def test_raw_client_refuses_a_certificate_of_another_authority(
    tls_broker: tuple[RunningBroker, Keys], tmp_path: Path
) -> None:
    broker, _ = tls_broker
    tls_port = int(broker.addresses["SSL"].rpartition(":")[2])
    foreign = Keys.made_in(tmp_path)
    with pytest.raises(LoadFailed, match=r"TLS handshake: .*certificate verify failed"):
        put_load(ProduceLoad(1, in_flight=1, requests=1), tls_port, "encrypted", ca=foreign.ca)
