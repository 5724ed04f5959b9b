from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.peer import Peer
from bench.raw_client.load import LoadFailed, ProduceLoad, put_load
from bench.scenarios.scenario import BROKER_CPU, RECORDS_PER_S, REQUESTS_PER_S, Figures
from bench.scenarios.topics import count_records, create_topic, delete_topic, settle_disk

# (records per batch, requests in flight) of the list.
SHAPES: Final = ((1, 1), (1, 5), (1, 100), (50, 5), (50, 20), (4000, 5))
# Shapes measured again with a client that never sleeps.  A sleeping client costs a wake-up per round trip, and lets the
# cores of a virtual machine halt: small requests then wait for wake-ups more than for work, on both sides.
BUSY_SHAPES: Final = ((1, 1), (1, 5), (1, 100), (50, 5))
BUSY_POLL_US: Final = 1000
SPREADS: Final = (1, 16, 100, 1000)


@dataclass(frozen=True, slots=True)
class ProduceScenario:
    """A fresh topic in each round, produced to with acks=all."""

    load: ProduceLoad

    @property
    def name(self) -> str:
        suffix = "-busy" if self.load.busy_poll_us > 0 else ""
        return f"produce-b{self.load.batch_records}-f{self.load.in_flight}-p{self.load.partitions}{suffix}"

    @property
    def headline(self) -> str:
        return REQUESTS_PER_S if self.load.batch_records == 1 else RECORDS_PER_S

    @property
    def keeps_its_topic(self) -> bool:
        """So many partitions are too dear to make again in each round; otherwise a round's data go with its topic."""
        return self.load.partitions >= 1000

    def prepare(self, peer: Peer) -> None:
        if self.keeps_its_topic:
            self._make_topic(peer)

    def measure(self, peer: Peer) -> Figures:
        if not self.keeps_its_topic:
            self._make_topic(peer)
        settle_disk()
        count_before = count_records(peer, self.name, self.load.partitions)
        cpu_before = peer.cpu_seconds()
        result = put_load(self.load, peer.port, self.name)
        # The broker's time and the records are both of the whole load, warm-up and draining included.
        broker_cpu_s = peer.cpu_seconds() - cpu_before
        stored = count_records(peer, self.name, self.load.partitions) - count_before
        if stored != result.records_total:
            acknowledged = int(result.records_total)
            raise LoadFailed(f"{peer.name}, {self.name}: {acknowledged} records acknowledged, {stored} stored")
        if not self.keeps_its_topic:
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
        if self.keeps_its_topic:
            delete_topic(peer, self.name)

    def _make_topic(self, peer: Peer) -> None:
        """A topic whose partitions have all been written to, twice.

        The first append to a partition opens files and makes a checkpoint; the first index entry, with the second
        batch over 4 KiB, faults in Apache Kafka's mapped index files, which costs up to 50 ms for each partition
        where the disk's read-ahead is large.  All that is paid once and is no part of a rate.
        """
        partitions = self.load.partitions
        create_topic(peer, self.name, partitions)
        touch = ProduceLoad(batch_records=50, in_flight=5, partitions=partitions, requests=2 * partitions)
        put_load(touch, peer.port, self.name)


def produce_scenarios(seconds: float, spreads: tuple[int, ...] = SPREADS) -> list[ProduceScenario]:
    """Every shape over one partition for `seconds`, some of them busy too, then over more partitions for 0.4 of it."""
    scenarios = []
    for partitions in spreads:
        duration_s = seconds if partitions == 1 else seconds * 0.4
        for batch_records, in_flight in SHAPES:
            load = ProduceLoad(batch_records, in_flight, partitions, seconds=duration_s)
            scenarios.append(ProduceScenario(load))
        if partitions == 1:
            scenarios += [
                ProduceScenario(ProduceLoad(*shape, seconds=duration_s, busy_poll_us=BUSY_POLL_US))
                for shape in BUSY_SHAPES
            ]
    return scenarios
