"""Clients and connections: loads on all peers in turn, which run at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bench.growth.load import make_topic, measure_produce
from bench.peers.names import OTTLA_2P, OTTLA_OS
from bench.peers.peer import Peer
from bench.raw_client.load import ProduceLoad
from bench.study import ROUND, Observed
from bench.wire import Wire

SHARED_PARTITIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Line:
    """So many connections, each with `in_flight` requests of `batch_records` on their way."""

    name: str
    connections: int
    batch_records: int
    in_flight: int
    partitions: int


# Each client has a connection and a partition, as producers of different services have.
CLIENTS: Final = tuple(
    Line(f"clients-{clients}-b{batch_records}-f{in_flight}", clients, batch_records, in_flight, clients)
    for clients, batch_records, in_flight in ((16, 50, 5), (16, 1, 5), (64, 1, 1))
)
# Requests/s, as a multiple of Apache Kafka's in the same round: what one machine of two cores should reach with the
# better of Ottla's forms.
AIMS: Final = dict(zip((line.name for line in CLIENTS), (1.5, 2.0, 1.1), strict=True))
FORMS: Final = (OTTLA_OS, OTTLA_2P)


def connection_lines(counts: Iterable[int]) -> list[Line]:
    return [Line(f"connections-{count}", count, 1, 1, SHARED_PARTITIONS) for count in counts]


def measure_line(line: Line, peer: Peer, seconds: float, round_index: int, observed: Observed) -> None:
    """A fresh topic, which is deleted afterwards: later lines need the disk."""
    topic = f"{line.name}-{round_index}"
    ports = make_topic(peer, topic, line.partitions)
    load = ProduceLoad(
        line.batch_records,
        line.in_flight,
        line.partitions,
        seconds=seconds,
        connections=line.connections,
        leader_ports=ports,
    )
    try:
        figures = measure_produce(peer, load, topic)
    finally:
        with Wire(peer.port) as wire:
            wire.delete_topic(topic)
    observed.add(line.name, peer.name, {ROUND: round_index, **figures})
