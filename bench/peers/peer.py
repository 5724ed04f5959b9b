from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

# Both delete files a minute after their topic by default; the benchmark needs its disk back between two lines.
HOUSEKEEPING: Final = {"log.segment.delete.delay.ms": "1000"}


class Peer(Protocol):
    """One running broker.  `startup_s` is from starting its process to its first ApiVersions answer."""

    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def startup_s(self) -> float: ...
    @property
    def data_dir(self) -> Path: ...
    def cpu_seconds(self) -> float: ...
    def rss_bytes(self) -> int: ...
    def rss_peak_bytes(self) -> int: ...


class StartPeer(Protocol):
    """Makes a fresh broker that keeps its data below `work_dir`; it runs while its context is open."""

    def __call__(self, work_dir: Path) -> AbstractContextManager[Peer]: ...
