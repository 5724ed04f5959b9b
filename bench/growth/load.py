"""What the parts share: a load with its figures, a warm-up, and topics whose files are open."""

from __future__ import annotations

from typing import Final

from bench.peers.names import APACHE_KAFKA
from bench.peers.peer import Peer
from bench.raw_client.load import FetchLoad, LoadResult, ProduceLoad, put_load
from bench.scenarios.topics import create_topic, settle_disk
from bench.wire import Wire

REQUESTS_PER_S: Final = "requests_per_s"
CPU_US: Final = "broker_cpu_us_per_request"
CLIENT_SHARE: Final = "client_cpu_share"
RSS_MB: Final = "rss_mb"
# Apache Kafka's controller takes 10,000 records for one request at most.
PARTITIONS_AT_ONCE: Final = 2500


def measure_produce(peer: Peer, load: ProduceLoad, topic: str) -> dict[str, float]:
    """Processor time and memory are of all processes of the peer; the time is of the whole load, warm-up included."""
    settle_disk()
    cpu_before = peer.cpu_seconds()
    result = put_load(load, peer.port, topic)
    cpu_s = peer.cpu_seconds() - cpu_before
    return {
        REQUESTS_PER_S: result.requests_per_s,
        **latencies(result),
        CPU_US: cpu_s / result.requests_total * 1e6,
        CLIENT_SHARE: result.client_cpu_share,
        RSS_MB: peer.rss_bytes() / 1e6,
    }


def latencies(result: LoadResult) -> dict[str, float]:
    return {"p50_ms": result.p50_us / 1000, "p99_ms": result.p99_us / 1000, "max_ms": result.max_us / 1000}


def warm_up(peer: Peer, seconds: float) -> None:
    """A JVM compiles what runs often; a broker without one gets a second."""
    seconds = seconds if peer.name == APACHE_KAFKA else 1
    ports = make_topic(peer, "warm", 4)
    for batch_records, in_flight in ((1, 100), (1, 1), (50, 5)):
        load = ProduceLoad(
            batch_records, in_flight, 4, seconds=seconds / 4, warmup_s=0, connections=4, leader_ports=ports
        )
        put_load(load, peer.port, "warm")
    put_load(FetchLoad(1 << 20, seconds=seconds / 4, warmup_s=0), ports[0], "warm")


def make_topic(peer: Peer, topic: str, partitions: int) -> tuple[int, ...]:
    """The ports of its leaders.  Each partition has been written to: its first append opens files, paid once."""
    create_topic(peer, topic, min(partitions, PARTITIONS_AT_ONCE))
    with Wire(peer.port) as wire:
        for count in range(2 * PARTITIONS_AT_ONCE, partitions + PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE):
            wire.grow_topic(topic, min(partitions, count))
        ports = wire.leader_ports(topic)
    put_load(
        ProduceLoad(1, 50, partitions, requests=2 * partitions, connections=len(set(ports)), leader_ports=ports),
        peer.port,
        topic,
    )
    return ports
