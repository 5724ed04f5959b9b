"""A backlog is read from the disk beside a paced producer."""

from __future__ import annotations

import os
import statistics
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.growth.load import latencies, make_topic
from bench.growth.sizes import Sizes
from bench.peers.peer import Peer
from bench.raw_client.load import VALUE_BYTES, FetchLoad, LoadResult, ProduceLoad, put_load
from bench.scenarios.topics import settle_disk
from bench.study import Observed, say

BACKLOG: Final = "backlog"
LIVE: Final = "live"
BACKLOG_BATCH: Final = 4000
FETCH_BYTES: Final = 1 << 20
# 20,000 messages/s in batches of 20, at even distances.
PACED_BATCH: Final = 20
PACED_REQUESTS_PER_S: Final = 1000
PACED_IN_FLIGHT: Final = 5
# The producer's load is repeated until the backlog has been read; the last window ends after it.
WINDOW_S: Final = 5.0
# A read of the whole backlog ends sooner, or has failed (bench/raw_client/load.py).
FILLING_REQUESTS_MAX: Final = 5000


def measure_backlog(name: str, peer: Peer, sizes: Sizes, scale: float, observed: Observed) -> None:
    """The same paced producer alone, and beside a reader of the whole backlog, which starts on the disk."""
    size_bytes = int(sizes.backlog_bytes * scale)
    [backlog_port], [live_port] = make_topic(peer, BACKLOG, 1), make_topic(peer, LIVE, 1)
    say(f"{name}: filling a backlog of {size_bytes / 1e9:g} GB")
    fill(backlog_port, size_bytes)
    settle_disk()
    observed.add("backlog-alone", name, latencies(paced(live_port, sizes.backlog_s)))
    settle_disk()
    forget_pages(peer.data_dir, BACKLOG)
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(put_load, FetchLoad(FETCH_BYTES, warmup_s=0, passes=1), backlog_port, BACKLOG)
        windows = paced_until_read(live_port, reading)
        read = reading.result()
    figures = {
        "p50_ms": statistics.median(window.p50_us for window in windows) / 1000,
        # Of the worst window: the reader's first seconds and its last are not alike.
        "p99_ms": max(window.p99_us for window in windows) / 1000,
        "max_ms": max(window.max_us for window in windows) / 1000,
        "read_mb_per_s": read.mb_per_s,
        "read_s": read.seconds,
    }
    observed.add("backlog-beside", name, figures)


def fill(port: int, size_bytes: int) -> None:
    remaining = size_bytes // (BACKLOG_BATCH * VALUE_BYTES)
    while remaining > 0:
        requests = min(remaining, FILLING_REQUESTS_MAX)
        put_load(ProduceLoad(BACKLOG_BATCH, in_flight=5, requests=requests), port, BACKLOG)
        remaining -= requests


def paced(port: int, seconds: float) -> LoadResult:
    load = ProduceLoad(PACED_BATCH, PACED_IN_FLIGHT, seconds=seconds, warmup_s=0.5, requests_per_s=PACED_REQUESTS_PER_S)
    return put_load(load, port, LIVE)


def paced_until_read(port: int, reading: Future[LoadResult]) -> list[LoadResult]:
    """One window at least."""
    windows = [paced(port, WINDOW_S)]
    while not reading.done():
        windows.append(paced(port, WINDOW_S))
    # The last one ran beside no reader in part; it says less than the others.
    return windows[:-1] or windows


def forget_pages(data_dir: Path, topic: str) -> None:
    """Let the page cache forget the topic's files, so that the next reader finds them on the disk."""
    for path in data_dir.rglob(f"{topic}-*/*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
