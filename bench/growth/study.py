"""./dev bench growth: partitions, connections and a backlog; Ottla (both policies) beside Apache Kafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS, PEERS_WITH_SETTINGS
from bench.peers.peer import Peer, RestartablePeer
from bench.raw_client.load import VALUE_BYTES, FetchLoad, LoadResult, ProduceLoad, put_load
from bench.scenarios.topics import create_topic, settle_disk
from bench.study import Observed, Study, StudyOptions, markdown_table, number, say
from bench.wire import NO_SETTINGS

METRICS: Final[Mapping[str, str]] = {
    "requests_per_s": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "max_ms": "worst ms",
    "broker_cpu_us_per_request": "broker CPU µs/request",
    "rss_mb": "memory MB",
    "restart_s": "restart s",
    "read_mb_per_s": "reader MB/s",
}
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "partitions": (
        "Partitions",
        "One topic; one connection, 100 requests of one record on their way, partitions in turn. Restart: a clean stop,"
        " then from the process's start to its first answer.",
    ),
    "connections": ("Connections", "One partition; one request of one record on its way on each connection."),
    "backlog": (
        "Backlog",
        "1,000 requests/s of 20 records each, evenly; latency from when a request was due. Alone, and beside a consumer"
        " that reads the whole backlog again and again, 1 MiB at a time, the first time from the disk.",
    ),
}


def growth_table(observed: Observed) -> str:
    parts = []
    for part, (title, note) in PARTS.items():
        lines = [key for key in observed.rounds if key[0].startswith(f"{part}-")]
        if lines:
            parts.append(f"### {title}\n\n{note}\n\n{_table(observed, part, lines)}")
    return "\n\n".join(parts)


def _table(observed: Observed, part: str, lines: list[tuple[str, str]]) -> str:
    metrics = [metric for metric in METRICS if any(metric in observed.rounds[line][0] for line in lines)]
    order = {scenario: index for index, scenario in enumerate(observed.scenarios())}
    rows = [
        [scenario.removeprefix(f"{part}-"), peer, *(number(observed.median(scenario, peer, name)) for name in metrics)]
        for scenario, peer in sorted(lines, key=lambda line: order[line[0]])
    ]
    return markdown_table((part, "broker", *(METRICS[metric] for metric in metrics)), rows)


PEERS: Final = (APACHE_KAFKA, OTTLA_OS, OTTLA_ACK)
CONNECTIONS: Final = (1, 100, 1000)
BACKLOG_BATCH: Final = 4000
# A producer of the backlog's part: 20,000 messages/s in batches of 20, at even distances.
PACED_BATCH: Final = 20
PACED_REQUESTS_PER_S: Final = 1000
PACED_IN_FLIGHT: Final = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    partitions: tuple[int, ...]
    seconds: float
    warm_s: float
    backlog_bytes: int
    backlog_s: float


FULL: Final = Sizes((1, 100, 1000, 5000), seconds=3, warm_s=8, backlog_bytes=5_000_000_000, backlog_s=10)
QUICK: Final = Sizes((1, 100, 1000), seconds=1.5, warm_s=3, backlog_bytes=500_000_000, backlog_s=3)


class GrowthRun:
    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL

    def run(self) -> None:
        for round_index in range(self._options.rounds):
            names = [name for name in PEERS if self._options.has_peer(name)]
            for name in names if round_index % 2 == 0 else names[::-1]:
                if self._options.has_part("partitions"):
                    for count in self._sizes.partitions:
                        with self._observed.may_fail(f"{name}, {count} partitions"):
                            self._measure_partitions(name, count)
                if self._options.has_part("connections") or self._options.has_part("backlog"):
                    with self._observed.may_fail(f"{name}, connections and backlog"):
                        self._measure_others(name)

    def _measure_partitions(self, name: str, count: int) -> None:
        """A fresh broker with one topic: batches of one record to all partitions in turn, then a restart."""
        say(f"{name}: {count} partitions")
        with PEERS_WITH_SETTINGS[name](self._options.work_dir, NO_SETTINGS) as peer:
            self._warm_up(peer)
            create_topic(peer, "grown", count)
            # The first append to a partition opens its files: paid once, no part of a rate.
            put_load(ProduceLoad(1, in_flight=100, partitions=count, requests=count), peer.port, "grown")
            load = ProduceLoad(1, in_flight=100, partitions=count, seconds=self._sizes.seconds)
            figures = _produce(peer, load, "grown")
            self._observed.add(f"partitions-{count}", name, figures | {"restart_s": _restart_s(peer)})

    def _measure_others(self, name: str) -> None:
        with PEERS_WITH_SETTINGS[name](self._options.work_dir, NO_SETTINGS) as peer:
            self._warm_up(peer)
            if self._options.has_part("connections"):
                create_topic(peer, "shared", 1)
                for count in CONNECTIONS:
                    load = ProduceLoad(1, in_flight=1, connections=count, seconds=self._sizes.seconds)
                    with self._observed.may_fail(f"{name}, {count} connections"):
                        self._observed.add(f"connections-{count}", name, _produce(peer, load, "shared"))
            if self._options.has_part("backlog"):
                with self._observed.may_fail(f"{name}, backlog"):
                    self._measure_backlog(name, peer)

    def _measure_backlog(self, name: str, peer: Peer) -> None:
        """The same paced producer alone and beside a reader of the whole backlog, which begins on the disk."""
        requests = self._sizes.backlog_bytes // (BACKLOG_BATCH * VALUE_BYTES)
        create_topic(peer, "backlog", 1)
        create_topic(peer, "live", 1)
        say(f"{name}: filling a backlog of {self._sizes.backlog_bytes / 1e9:g} GB")
        put_load(ProduceLoad(BACKLOG_BATCH, in_flight=5, requests=requests), peer.port, "backlog")
        settle_disk()
        self._observed.add("backlog-alone", name, _latencies(self._paced(peer)))
        settle_disk()
        forget_pages(peer.data_dir / "backlog-0")
        with ThreadPoolExecutor(1) as reader:
            load = FetchLoad(1 << 20, seconds=self._sizes.backlog_s + 1, warmup_s=0)
            reading = reader.submit(put_load, load, peer.port, "backlog")
            figures = _latencies(self._paced(peer))
            read = reading.result()
        self._observed.add("backlog-beside", name, figures | {"read_mb_per_s": read.mb_per_s})

    def _paced(self, peer: Peer) -> LoadResult:
        load = ProduceLoad(
            PACED_BATCH,
            PACED_IN_FLIGHT,
            seconds=self._sizes.backlog_s - 1,
            warmup_s=0.5,
            requests_per_s=PACED_REQUESTS_PER_S,
        )
        return put_load(load, peer.port, "live")

    def _warm_up(self, peer: Peer) -> None:
        """A JVM compiles what runs often; a broker without one needs less."""
        seconds = self._sizes.warm_s if peer.name == APACHE_KAFKA else 1
        create_topic(peer, "warm", 1)
        for batch_records, in_flight in ((1, 100), (50, 5)):
            put_load(ProduceLoad(batch_records, in_flight, seconds=seconds / 2, warmup_s=0), peer.port, "warm")
        put_load(FetchLoad(1 << 20, seconds=seconds / 4, warmup_s=0), peer.port, "warm")


def _produce(peer: Peer, load: ProduceLoad, topic: str) -> dict[str, float]:
    settle_disk()
    cpu_before = peer.cpu_seconds()
    result = put_load(load, peer.port, topic)
    cpu_s = peer.cpu_seconds() - cpu_before
    return _latencies(result) | {
        "requests_per_s": result.requests_per_s,
        "broker_cpu_us_per_request": cpu_s / result.requests_total * 1e6,
        "client_cpu_share": result.client_cpu_share,
        "rss_mb": peer.rss_bytes() / 1e6,
    }


def _latencies(result: LoadResult) -> dict[str, float]:
    return {"p50_ms": result.p50_us / 1000, "p99_ms": result.p99_us / 1000, "max_ms": result.max_us / 1000}


def _restart_s(peer: RestartablePeer) -> float:
    """A clean stop, then seconds from starting the process to its first answer."""
    peer.stop()
    peer.start()
    return peer.startup_s


def forget_pages(directory: Path) -> None:
    """Let the page cache forget these files, so that the next reader finds them on the disk."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


STUDY: Final = Study(
    name="growth",
    summary="cost against partitions, connections and a backlog, beside Apache Kafka",
    parts=("partitions", "connections", "backlog"),
    peers=PEERS,
    rounds=1,
    run=lambda options, observed: GrowthRun(options, observed).run(),
    table=growth_table,
)
