"""The figures of three brokers as Markdown: Ottla's, Apache Kafka's, and the one divided by the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.study import Observed, markdown_table, number, with_spread


class Row(NamedTuple):
    label: str
    scenario: str
    metric: str
    aim: str = "-"


ROWS: Final[Sequence[Row]] = (
    Row("batches of 1, 5 in flight: requests/s", "throughput-b1-f5", "requests_per_s", "os ≥ 2x, ack ≥ 1x"),
    Row("batches of 1, 100 in flight: requests/s", "throughput-b1-f100", "requests_per_s", "os ≥ 2x, ack ≥ 1x"),
    Row("batches of 50, 5 in flight: records/s", "throughput-b50-f5", "records_per_s", "os ≥ 2x, ack ≥ 1x"),
    Row("batches of 4,000, 5 in flight: records/s", "throughput-b4000-f5", "records_per_s", "os ≥ 2x, ack ≥ 1x"),
    Row("memory of all processes after that, MB", "memory-loaded", "rss_mb", "≤ 0.15x"),
    Row("kill -9 of a leader: s without writes", "kill", "without_writes_s", "≤ 0.5x"),
    Row("kill -9 of a coordinator: s without commits", "kill", "without_commits_s", "≤ 0.5x"),
    Row("a leader freezes: s until another leads", "pause", "until_led_s", "≤ 0.5x"),
    Row("undisturbed: producer's p99, ms", "shutdown", "before_p99_ms"),
    Row("controlled shutdown: producer's p99, ms", "shutdown", "shutdown_p99_ms"),
    Row("controlled shutdown: producer's worst, ms", "shutdown", "shutdown_max_ms"),
    Row("controlled shutdown: takes, s", "shutdown", "shutdown_s"),
    Row("the broker's return: producer's p99, ms", "shutdown", "return_p99_ms"),
    Row("the broker's return: producer's worst, ms", "shutdown", "return_max_ms"),
    Row("return to ISR with {mb} MB to catch up, s", "return", "seconds"),
    Row("{count} partitions: made, led and in sync after, s", "partitions", "created_s"),
    Row("{count} partitions: all brokers stop, all ended after, s", "partitions", "stop_s"),
    Row("{count} partitions: all brokers start, all led after, s", "partitions", "start_led_s"),
    Row("{count} partitions: kill -9 of one broker, all led after, s", "partitions", "failover_s", "≤ 0.5x"),
    Row("{count} partitions: its return, all in sync after, s", "partitions", "return_in_sync_s"),
    Row("{count} partitions: full metadata, ms", "partitions", "metadata_p50_ms"),
    Row("{count} partitions: idle, cores", "partitions", "idle_cores"),
    Row("{count} partitions: memory of all processes, MB", "partitions", "rss_mb", "≤ 0.15x"),
    Row("nothing in it: memory of all processes, MB", "partitions", "fresh_rss_mb", "≤ 0.15x"),
)
COLUMNS: Final = (OTTLA_OS, OTTLA_ACK, APACHE_KAFKA)


def cluster_table(observed: Observed) -> str:
    rows = []
    for row in ROWS:
        scenario = _measured(observed, row.scenario)
        if scenario is None:
            continue
        label = row.label.format(
            mb=number(observed.median(scenario, _first_peer(observed, scenario), "mb")),
            count=f"{int(scenario.rpartition('-')[2]):,}" if row.scenario == "partitions" else "",
        )
        medians = {peer: observed.median(scenario, peer, row.metric) for peer in COLUMNS}
        ratios = [_ratio(medians[peer], medians[APACHE_KAFKA]) for peer in (OTTLA_OS, OTTLA_ACK)]
        values = [with_spread(observed, scenario, peer, row.metric) for peer in COLUMNS]
        rows.append([label, *values, *ratios, row.aim])
    headings = ("three brokers", *COLUMNS, "os ÷ Kafka", "ack ÷ Kafka", "aim")
    return markdown_table(headings, rows) if rows else "Nothing was measured."


def _measured(observed: Observed, scenario: str) -> str | None:
    """The scenario's whole name: that of the partitions ends with their count."""
    names = observed.scenarios()
    return next((name for name in names if name == scenario or name.startswith(f"{scenario}-")), None)


def _first_peer(observed: Observed, scenario: str) -> str:
    return next(peer for name, peer in observed.rounds if name == scenario)


def _ratio(value: float | None, baseline: float | None) -> str:
    return "-" if value is None or not baseline else f"{value / baseline:.2g}x"
