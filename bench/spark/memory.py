"""How much memory the parts of a measurement hold while it runs, and whether that grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.loop import Watch

EVERY_S: Final = 0.25
THIRDS: Final = 3


class MemoryWatch(Watch):
    """What `read` gives, in bytes by name, is kept."""

    def __init__(self, read: Callable[[], Mapping[str, int]], every_s: float = EVERY_S) -> None:
        super().__init__(lambda: self._samples.append((time.perf_counter(), read())), every_s)
        self._samples: list[tuple[float, Mapping[str, int]]] = []

    def figures(self) -> dict[str, float]:
        """In MB: the peak of each name, the means of the three thirds of the time, and the last less the second."""
        figures: dict[str, float] = {}
        for name in self._samples[0][1]:
            samples = [(at_s, sizes[name]) for at_s, sizes in self._samples]
            means = means_of_thirds(samples)
            figures[f"{name}_peak_mb"] = max(size for _, size in samples) / 1e6
            for number, mean in enumerate(means, 1):
                figures[f"{name}_third_{number}_mb"] = mean / 1e6
            figures[f"{name}_growth_mb"] = (means[2] - means[1]) / 1e6
        return figures


def means_of_thirds(samples: Sequence[tuple[float, float]]) -> list[float]:
    """Of `(time, value)`, by the time: a third without a sample has the mean of the one before it."""
    began, ended = samples[0][0], samples[-1][0]
    thirds: list[list[float]] = [[] for _ in range(THIRDS)]
    for at_s, value in samples:
        share = (at_s - began) / (ended - began) if ended > began else 0.0
        thirds[min(THIRDS - 1, int(share * THIRDS))].append(value)
    means: list[float] = []
    for values in thirds:
        means.append(sum(values) / len(values) if values else means[-1])
    return means


def held_apart(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: its own, and those of mapped files, which are the page cache's."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            sizes[name] = int(rest.split()[0]) * 1024
    return sizes["RssAnon"] + sizes["RssShmem"], sizes["RssFile"]


def page_cache_bytes() -> int:
    """Of this process's control group, to which its children belong; of the machine where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place, field = ("memory", "total_cache") if "memory" in controllers.split(",") else ("", "file")
        if controllers in ("", "memory"):
            stat = Path("/sys/fs/cgroup", place, path.lstrip("/"), "memory.stat")
            found = _field(stat, field)
            if found is not None:
                return found
    return (_field(Path("/proc/meminfo"), "Cached:") or 0) * 1024


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if words[0] == name:
            return int(words[1])
    return None
