"""What a load cost the process that runs it: time, processor time, memory."""

from __future__ import annotations

import os
import time

from tests.peers.process_usage import rss_peak_bytes


class Stopwatch:
    """Runs from its making to `figures`."""

    def __init__(self) -> None:
        self._cpu_s = time.process_time()
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def figures(self, messages: int) -> dict[str, float]:
        """Of `messages` that passed since; the processor time is of all threads."""
        seconds = self.seconds
        cpu_s = time.process_time() - self._cpu_s
        return {
            "messages": messages,
            "messages_per_s": messages / seconds,
            "cpu_us_per_message": cpu_s / messages * 1e6,
            "cpu_share": cpu_s / seconds,
            "peak_mb": rss_peak_bytes(os.getpid()) / 1e6,
        }
