from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.peer import Peer
from bench.raw_client.load import VALUE_BYTES, FetchLoad, ProduceLoad, put_load
from bench.scenarios.scenario import BROKER_CPU, MB_PER_S, Figures
from bench.scenarios.topics import create_topic, delete_topic, settle_disk

# Read from the page cache, as consumers that keep up do; batches of a common size, cut by the limit now and then.
FILL_BYTES: Final = 400_000_000
FILL: Final = ProduceLoad(batch_records=50, in_flight=20, requests=FILL_BYTES // (50 * VALUE_BYTES))


@dataclass(frozen=True, slots=True)
class FetchScenario:
    """One topic, filled once, read from start to end again and again by one consumer."""

    label: str
    load: FetchLoad

    @property
    def name(self) -> str:
        return f"fetch-{self.label}"

    @property
    def headline(self) -> str:
        return MB_PER_S

    def prepare(self, peer: Peer) -> None:
        create_topic(peer, self.name, 1)
        put_load(FILL, peer.port, self.name)

    def measure(self, peer: Peer) -> Figures:
        settle_disk()
        cpu_before = peer.cpu_seconds()
        result = put_load(self.load, peer.port, self.name)
        broker_cpu_s = peer.cpu_seconds() - cpu_before
        return {
            MB_PER_S: result.mb_per_s,
            "requests_per_s": result.requests_per_s,
            "p50_us": result.p50_us,
            "p99_us": result.p99_us,
            "p999_us": result.p999_us,
            "client_cpu_share": result.client_cpu_share,
            BROKER_CPU: broker_cpu_s / result.records_total * 1e6,
            "rss_mb": peer.rss_bytes() / 1e6,
        }

    def clean_up(self, peer: Peer) -> None:
        delete_topic(peer, self.name)


def fetch_scenarios(seconds: float) -> list[FetchScenario]:
    return [
        FetchScenario("64k", FetchLoad(64 << 10, seconds=seconds)),
        FetchScenario("1m", FetchLoad(1 << 20, seconds=seconds)),
    ]
