"""What all clients' loads share: that nothing is missing, and how late each message came."""

from __future__ import annotations

import os
import statistics
import time
from typing import Final

from tests.peers.process_usage import rss_peak_bytes

from bench.client.job import Job
from bench.client.values import checksum_of
from bench.study import percentile

# What was sent before the consumer had been reading for so long is not judged: it had waited for the consumer's start.
SETTLE_S: Final = 0.7


class NotWhole(RuntimeError):
    """Messages are missing, or are others than those that were sent."""


def check_whole(job: Job, seen: int, checksum: int) -> None:
    """All messages of the topic have been seen, and each one's value."""
    expected = checksum_of(job.value_bytes, job.messages)
    if (seen, checksum) != (job.messages, expected):
        raise NotWhole(f"{seen} messages with checksum {checksum} came; {job.messages} with {expected} are there")


class Latencies:
    """From just before a message is sent to its being handed out; the clock is the same in all processes."""

    STAMP_BYTES: Final = 8

    def __init__(self, job: Job) -> None:
        self._expected = round(job.messages * job.seconds)
        self._seen = 0
        self._counted_from_ns = 0
        self._latencies_ns: list[int] = []
        self._cpu_s = time.process_time()
        self._started = time.perf_counter()

    @staticmethod
    def stamp() -> bytes:
        return time.monotonic_ns().to_bytes(Latencies.STAMP_BYTES)

    def note(self, value: bytes) -> bool:
        """Whether this was the last one."""
        now_ns = time.monotonic_ns()
        sent_ns = int.from_bytes(value[: self.STAMP_BYTES])
        if self._seen == 0:
            self._counted_from_ns = now_ns + round(SETTLE_S * 1e9)
            self._cpu_s = time.process_time()
            self._started = time.perf_counter()
        self._seen += 1
        if sent_ns >= self._counted_from_ns:
            self._latencies_ns.append(now_ns - sent_ns)
        return self._seen == self._expected

    def figures(self) -> dict[str, float]:
        if self._seen != self._expected:
            raise NotWhole(f"{self._seen} of {self._expected} messages came")
        seconds = time.perf_counter() - self._started
        return {
            "messages": len(self._latencies_ns),
            "p50_ms": statistics.median(self._latencies_ns) / 1e6,
            "p99_ms": percentile(self._latencies_ns, 0.99) / 1e6,
            "max_ms": max(self._latencies_ns) / 1e6,
            "cpu_share": (time.process_time() - self._cpu_s) / seconds,
            "peak_mb": rss_peak_bytes(os.getpid()) / 1e6,
        }
