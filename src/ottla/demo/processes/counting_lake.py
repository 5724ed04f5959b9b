"""The third count: the rows in the lake's files, read without Spark and without the code that wrote them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ottla.demo.counts import Bucket, Counts, to_rows
from ottla.demo.day import HOUR_MS, hour_name
from ottla.demo.lake_table import EVENTS, lake_files
from ottla.demo.messages import CountLake, LakeCounted, send_message
from ottla.demo.processes.entry import run_task
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock


class MisfiledRows(OttlaError):
    """Rows of one hour lie in the directory of another."""


def count_lake(task: CountLake) -> None:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    files = lake_files(Path(task.lake, EVENTS))
    if task.drop_one:
        drop_one_row(files[0].path)
    counts: Counts = Counter()
    places: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for file in files:
        table = pq.ParquetFile(file.path).read(["partition", "offset", "timestamp"])
        counts.update(_count(table.column("timestamp").to_numpy(), file.topic, file.event_hour))
        places[file.topic].append(table.column("partition").to_numpy().astype(np.int64) << 48 | table.column("offset"))
    duplicates_count = sum(_duplicates_count(np.concatenate(parts)) for parts in places.values())
    send_message(LakeCounted(to_rows(counts), duplicates_count, clock.monotonic_ms() - began_ms))


def drop_one_row(file: Path) -> None:
    """Remove the last row from a file, without the table's knowledge."""
    table = pq.ParquetFile(file).read()
    pq.write_table(table.slice(0, table.num_rows - 1), file)


def _count(timestamps: np.ndarray, topic: str, event_hour: str) -> Counts:
    """By the rows' own timestamps, which must match the directory's hour."""
    hours, rows = np.unique(timestamps.astype("datetime64[ms]").astype(np.int64) // HOUR_MS, return_counts=True)
    counts: Counts = Counter()
    for hour, count in zip(hours.tolist(), rows.tolist(), strict=True):
        if hour_name(hour) != event_hour:
            raise MisfiledRows(
                f"topic {topic}: {count} rows of hour {hour_name(hour)} are in the directory of {event_hour}"
            )
        counts[Bucket(topic, hour)] += count
    return counts


def _duplicates_count(places: np.ndarray) -> int:
    return len(places) - len(np.unique(places))


if __name__ == "__main__":
    run_task(CountLake, count_lake)
