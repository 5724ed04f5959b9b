"""The process, under the names that Prometheus' own clients use."""

from __future__ import annotations

from collections.abc import Iterator

from ottla import __version__
from ottla.observe.metrics import Family, counter, gauge
from ottla.runtime.process import process_figures


def process_families(started_ms: int, node_id: int, cluster_id: str) -> Iterator[Family]:
    """What the platform does not tell is left out.  `started_ms`: by the wall clock."""
    figures = process_figures()
    yield gauge(
        "ottla_broker_info",
        "Always 1; the labels name the broker.",
        {(str(node_id), cluster_id, __version__): 1},
        ("node_id", "cluster_id", "version"),
    )
    yield counter("process_cpu_seconds_total", "Processor time of this process.", figures.cpu_s)
    yield gauge("process_start_time_seconds", "When this process started, since the epoch.", started_ms / 1_000)
    if figures.resident_bytes is not None:
        yield gauge("process_resident_memory_bytes", "Resident memory.", figures.resident_bytes)
    if figures.open_files_count is not None:
        yield gauge("process_open_fds", "Open descriptors.", figures.open_files_count)
    if figures.open_files_max is not None:
        yield gauge("process_max_fds", "The limit of open descriptors.", figures.open_files_max)
