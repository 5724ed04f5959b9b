"""The tables of `bench growth`: a part each, with ratios to Apache Kafka's figures of the same round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.growth.idle import IDLE_CORES, KB_AIM, KB_PER_CONNECTION
from bench.growth.lines import AIMS, FORMS
from bench.growth.load import CLIENT_SHARE, CPU_US, REQUESTS_PER_S
from bench.peers.names import APACHE_KAFKA, OTTLA_2P, OTTLA_OS
from bench.study import Observed, markdown_table, number, times

METRICS: Final[Mapping[str, str]] = {
    REQUESTS_PER_S: "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "max_ms": "worst ms",
    CPU_US: "broker CPU µs/request",
    "fetches_per_s": "fetches/s",
    "commit_p50_ms": "commit p50 ms",
    "commit_p99_ms": "commit p99 ms",
    "broker_cpu_us_per_fetch": "broker CPU µs/fetch and commit",
    CLIENT_SHARE: "client's core share",
    KB_PER_CONNECTION: "kB/connection",
    IDLE_CORES: "cores when idle",
    "rss_mb": "memory MB",
    "create_s": "creation s",
    "restart_s": "restart s",
    "read_mb_per_s": "reader MB/s",
    "read_s": "read whole, s",
}
ONE_TOPIC: Final = (
    "One topic; two connections with 50 requests of one record on their way on each, partitions in turn. Restart: a"
    " clean stop, then from the process's start to its first answer. Creation: until every partition answers."
)
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "partitions": ("Partitions", ONE_TOPIC),
    "many": ("Many partitions", ONE_TOPIC),
    "connections": (
        "Connections",
        "16 partitions; one request of one record on its way on each connection, which keeps to one partition.",
    ),
    "clients": (
        "Clients",
        "Each client has its connection and its partition. `b`: records in a batch, `f`: requests on their way on each"
        " connection. Ratio: requests/s to Apache Kafka's in the same round, the median over the rounds.",
    ),
    "idle": ("Idle connections", "Opened, one ApiVersions each, then silent: growth of the resident memory."),
    "groups": (
        "Groups",
        "So many groups of one member follow one partition, to which a producer writes 20 requests/s of 20 records; a"
        " commit follows each fetch. p50, p99: the producer's, from when a request was due.",
    ),
    "brokers": (
        "Brokers",
        "18 partitions of three replicas over all brokers, a connection for each; processor time and memory are of all"
        " processes of the cluster (Ottla's ZooKeeper too).",
    ),
    "backlog": (
        "Backlog",
        "1,000 requests/s of 20 records each, evenly; latency from when a request was due. Alone, and beside a consumer"
        " that reads the whole backlog from the disk, 1 MiB at a time: the median of p50, the worst p99 of windows of"
        " 5 s.",
    ),
}


def growth_table(observed: Observed) -> str:
    parts = []
    for part, (title, note) in PARTS.items():
        lines = [key for key in observed.rounds if key[0].startswith(f"{part}-")]
        if lines:
            parts.append(f"### {title}\n\n{note}\n\n{_table(observed, part, lines)}")
    return "\n\n".join([*parts, *_verdicts(observed)])


def _table(observed: Observed, part: str, lines: list[tuple[str, str]]) -> str:
    metrics = [metric for metric in METRICS if any(metric in observed.rounds[line][0] for line in lines)]
    has_rate = REQUESTS_PER_S in metrics
    order = {scenario: index for index, scenario in enumerate(observed.scenarios())}
    rows = []
    for scenario, peer in sorted(lines, key=lambda line: order[line[0]]):
        figures = [number(observed.median(scenario, peer, name)) for name in metrics]
        ratios = [_ratio(observed, scenario, peer, name) for name in (REQUESTS_PER_S, CPU_US)] if has_rate else []
        rows.append([scenario.removeprefix(f"{part}-"), peer, *figures, *ratios])
    headings = ("ratio", "CPU ratio") if has_rate else ()
    return markdown_table((part, "broker", *(METRICS[metric] for metric in metrics), *headings), rows)


def _ratio(observed: Observed, scenario: str, peer: str, metric: str) -> str:
    return "" if peer == APACHE_KAFKA else times(observed.paired_ratio(scenario, peer, APACHE_KAFKA, metric))


def _verdicts(observed: Observed) -> list[str]:
    """The aims of what was measured, each met or missed."""
    words = []
    for scenario, aim in AIMS.items():
        found = {name: observed.paired_ratio(scenario, name, APACHE_KAFKA, REQUESTS_PER_S) for name in FORMS}
        ratios = {name: ratio for name, ratio in found.items() if ratio is not None}
        if ratios:
            best = max(ratios, key=lambda name: ratios[name])
            verdict = "met" if ratios[best] >= aim else "missed"
            words.append(f"* {scenario}: {ratios[best]:.2f}x of Apache Kafka by {best}, aim {aim:g}x: {verdict}")
        growth = observed.paired_ratio(scenario, OTTLA_2P, OTTLA_OS, CPU_US)
        if growth is not None:
            words.append(f"* {scenario}: processor time per request of {OTTLA_2P} is {growth:.2f}x of {OTTLA_OS}'s")
    for scenario, peer in observed.rounds:
        size = observed.median(scenario, peer, KB_PER_CONNECTION)
        if size is not None and peer != APACHE_KAFKA:
            verdict = "met" if size <= KB_AIM else "missed"
            words.append(f"* {scenario}: {size:.1f} kB/connection of {peer}, aim {KB_AIM:g}: {verdict}")
    return ["### Aims\n\n" + "\n".join(words)] if words else []
