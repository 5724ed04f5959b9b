"""The figures of groups as Markdown."""

from __future__ import annotations

from typing import Final

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK
from bench.study import Observed, markdown_table, number

PEERS: Final = (APACHE_KAFKA, OTTLA_ACK)
EVENTS: Final = {
    "form": "all join an empty group, delay 0",
    "join": "one more joins",
    "leave": "one leaves",
    "death": "one dies (session 6 s)",
}
STORM_NOTES: Final = """\
Milliseconds from the event (before the request of it is sent) until every member has had an answer to its first fetch
in the new generation, and every partition is owned once; medians, with min..max. Classic protocol, 100 partitions (the
storm: 400); members are lean coroutines with a connection each, the same for both brokers; they send heartbeats every
0.1 s (clients: 3 s by default), by which they learn of a rebalance that another began. Ottla flushes what it
acknowledges (policy `ack`), Apache Kafka does not. Delay: `group.initial.rebalance.delay.ms`. KIP-848: the protocol of
consumer groups, heartbeats every 0.1 s too (5 s by default), the broker's default assignor."""


def rebalance_table(observed: Observed) -> str:
    rows = []
    for scenario in observed.scenarios():
        kind, _, rest = scenario.partition("-")
        if kind in EVENTS:
            size, _, protocol = rest.partition("-")
            title = f"{size} members{', KIP-848' if protocol else ''}: {EVENTS[kind]}"
            rows.append([title, *_cells(observed, scenario)])
        elif kind == "storm":
            joins, _, delay_ms = rest.partition("-delay-")
            rows.append([f"{joins} join at once, delay {int(delay_ms):,} ms", *_cells(observed, scenario)])
    rebalances = markdown_table(("event", "Apache Kafka, ms", "Ottla, ms"), rows)
    return f"{rebalances}\n\n{STORM_NOTES}\n\n{commits_table(observed)}"


def commits_table(observed: Observed) -> str:
    rows = [
        [
            scenario.partition("-")[2],
            peer,
            *(
                number(observed.median(scenario, peer, metric))
                for metric in ("commits_per_s", "p50_ms", "p99_ms", "broker_cpu_us_per_commit", "client_cpu_share")
            ),
        ]
        for scenario, peer in observed.rounds
        if scenario.startswith("commits-")
    ]
    headings = ("members", "broker", "commits/s", "p50 ms", "p99 ms", "broker CPU µs/commit", "client's core share")
    return markdown_table(headings, rows)


def _cells(observed: Observed, scenario: str) -> list[str]:
    cells = []
    for peer in PEERS:
        median, spread = observed.median(scenario, peer, "seconds"), observed.spread(scenario, peer, "seconds")
        if median is None or spread is None:
            cells.append("-")
        else:
            low, high = (f"{value * 1000:,.0f}" for value in spread)
            cells.append(f"{median * 1000:,.0f} ({low}..{high})")
    return cells
