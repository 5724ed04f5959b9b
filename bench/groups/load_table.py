"""A restart with many groups, as Markdown."""

from __future__ import annotations

from typing import Final

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK
from bench.study import Observed, markdown_table, number

ROWS: Final = {
    "ready_s": "ready: s from the process's start to its first answer",
    "load_s": "all groups loaded: s from then",
    "load_beside_producer_s": "the same beside a producer, s",
    "rss_mb": "memory when loaded, MB",
    "rss_peak_mb": "its peak, MB",
    "produce_p99_ms_during": "produce p99 while loading, ms",
    "produce_p99_ms_idle": "produce p99 when loaded, ms",
    "produce_max_ms_during": "worst produce while loading, ms",
    "produce_max_ms_idle": "worst produce when loaded, ms",
    "offsets_topic_mb": "the offsets topic before the restart, MB",
    "commit_s": "committing all of it before, s",
}
NOTES: Final = """\
The producer sends 1,000 requests/s of one record, evenly, from the moment when its partition has a leader, for nine
tenths of the load's time (10 s at most); latency from when a request was due. Apache Kafka's JVM has just been
started, as it would be."""


def groups_load_table(observed: Observed) -> str:
    about = f"{observed.about.get('groups')} groups, {observed.about.get('committed_offsets'):,} committed offsets."
    rows = [
        [title, *(number(observed.median("load", peer, metric)) for peer in (APACHE_KAFKA, OTTLA_ACK))]
        for metric, title in ROWS.items()
    ]
    return f"{about}\n\n{markdown_table(('', 'Apache Kafka', 'Ottla'), rows)}\n\n{NOTES}"
