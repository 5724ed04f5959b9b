from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.peer import Peer
from bench.raw_client.load import ProduceLoad, put_load
from bench.scenarios.scenario import BROKER_CPU, RECORDS_PER_S, REQUESTS_PER_S, Figures
from bench.scenarios.topics import create_topic, delete_topic, settle_disk

# (records per batch, requests in flight) of the list.
SHAPES: Final = ((1, 1), (1, 5), (1, 100), (50, 5), (50, 20), (4000, 5))
SPREADS: Final = (1, 16, 100, 1000)


@dataclass(frozen=True, slots=True)
class ProduceScenario:
    """A fresh topic in each round, produced to with acks=all."""

    load: ProduceLoad

    @property
    def name(self) -> str:
        return f"produce-b{self.load.batch_records}-f{self.load.in_flight}-p{self.load.partitions}"

    @property
    def headline(self) -> str:
        return REQUESTS_PER_S if self.load.batch_records == 1 else RECORDS_PER_S

    def prepare(self, peer: Peer) -> None:
        pass

    def measure(self, peer: Peer) -> Figures:
        create_topic(peer, self.name, self.load.partitions)
        settle_disk()
        cpu_before = peer.cpu_seconds()
        result = put_load(self.load, peer.port, self.name)
        # The broker's time and the records are both of the whole load, warm-up and draining included.
        broker_cpu_s = peer.cpu_seconds() - cpu_before
        delete_topic(peer, self.name)
        return {
            REQUESTS_PER_S: result.requests_per_s,
            RECORDS_PER_S: result.records_per_s,
            "mb_per_s": result.mb_per_s,
            "p50_us": result.p50_us,
            "p99_us": result.p99_us,
            "p999_us": result.p999_us,
            "client_cpu_share": result.client_cpu_share,
            BROKER_CPU: broker_cpu_s / result.records_total * 1e6,
            "rss_mb": peer.rss_bytes() / 1e6,
        }

    def clean_up(self, peer: Peer) -> None:
        pass


def produce_scenarios(seconds: float, spreads: tuple[int, ...] = SPREADS) -> list[ProduceScenario]:
    """Every shape over one partition for `seconds`, then over more of them for three fifths of it."""
    scenarios = []
    for partitions in spreads:
        duration_s = seconds if partitions == 1 else seconds * 0.6
        for batch_records, in_flight in SHAPES:
            load = ProduceLoad(batch_records, in_flight, partitions, seconds=duration_s)
            scenarios.append(ProduceScenario(load))
    return scenarios
