"""The part of the study's text that is about a backlog beside live topics: memory, and how late live records were."""

from __future__ import annotations

from typing import Final

from bench.client.contenders.names import CONFLUENT, OTTLA
from bench.study import Observed, markdown_table, number, with_spread

BACKLOG: Final = "backlog"
OTHER_TAIL: Final = f"{BACKLOG}-tail-of-another-topic"
SAME_TAIL: Final = f"{BACKLOG}-tail-of-the-same-topic"
OTHER_PER_S: Final = 1000
SAME_PER_S: Final = 200
IDLE: Final = "idle"
LOADING: Final = "loading"
# What holds memory, by its name in the figures.
HOLDERS: Final = {
    "driver": "driver: Python",
    "jvm": "driver: JVM",
    "workers": "Python workers",
    "broker": "broker",
    "all": "together",
    "broker_files": "broker: mapped files",
}
# Of its peak, from the second third of a load to the last.
FLAT_SHARE: Final = 0.1
# Tasks fill their buffers first: a shorter load says nothing.
JUDGED_FROM_ROWS: Final = 10_000_000


def memory_table(observed: Observed) -> str:
    if (BACKLOG, OTTLA) not in observed.rounds:
        return ""
    rows = []
    for name, words in HOLDERS.items():
        cells = [with_spread(observed, BACKLOG, OTTLA, f"{name}_{metric}_mb") for metric in _MEMORY]
        rows.append([words, *cells, _flatness(observed, name)])
    headings = ("MB held by", "peak", "first third", "second third", "last third", "last - second", "flat")
    rate = with_spread(observed, BACKLOG, OTTLA, "rows_per_s", 1e6)
    facts = [
        f"{number(observed.median(BACKLOG, OTTLA, 'rows'))} rows at {rate} million a second",
        f"commits: {number(observed.median(BACKLOG, OTTLA, 'commits'))}",
        *(
            f"{kind} {number(observed.median(BACKLOG, OTTLA, f'{kind.lower()}_cpu_us_per_row'))} µs of processor a row"
            for kind in ("JVM", "Python", "broker")
        ),
        f"page cache {with_spread(observed, BACKLOG, OTTLA, 'page_cache_before_mb')} MB before and "
        f"{with_spread(observed, BACKLOG, OTTLA, 'page_cache_after_mb')} MB after it",
    ]
    return f"## Memory of a load through a backlog\n\n{'; '.join(facts)}.\n\n{markdown_table(headings, rows)}"


_MEMORY: Final = ("peak", "third_1", "third_2", "third_3", "growth")


def _flatness(observed: Observed, name: str) -> str:
    growth, peak = (observed.median(BACKLOG, OTTLA, f"{name}_{metric}_mb") for metric in ("growth", "peak"))
    if growth is None or not peak:
        return "-"
    if (observed.median(BACKLOG, OTTLA, "rows") or 0) < JUDGED_FROM_ROWS:
        return "too short a load"
    share = growth / peak
    return f"{'yes' if share <= FLAT_SHARE else 'no'} ({share:+.0%} of the peak)"


def delays_table(observed: Observed) -> str:
    rows = []
    others = (OTHER_TAIL, f"another topic, {OTHER_PER_S:,}/s")
    for scenario, words in (others, (SAME_TAIL, f"the topic that is loaded, {SAME_PER_S:,}/s")):
        for name in (OTTLA, CONFLUENT):
            if (scenario, name) in observed.rounds:
                metrics = [f"{phase}_{metric}_ms" for phase in (IDLE, LOADING) for metric in ("p50", "p99", "max")]
                cells = [with_spread(observed, scenario, name, metric) for metric in (*metrics, "cpu_share")]
                rows.append([words, name, *cells])
    if not rows:
        return ""
    phases = [f"{phase}: {metric}" for phase in ("before", "beside") for metric in ("p50", "p99", "max")]
    headings = ("live records to", "consumer", *phases, "consumer's processors")
    return f"## Live records beside the load, ms from when each was due\n\n{markdown_table(headings, rows)}"
