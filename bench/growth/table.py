"""The figures of growth as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.study import Observed, markdown_table, number

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
