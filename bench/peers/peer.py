from __future__ import annotations

from collections.abc import Mapping
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


class StartPeerWith(Protocol):
    """The same with settings of the broker, by their names."""

    def __call__(self, work_dir: Path, settings: Mapping[str, str]) -> AbstractContextManager[RestartablePeer]: ...


class RestartablePeer(Peer, Protocol):
    """After `stop()`, `start()` brings it back with its data; `startup_s` is then of that start."""

    def stop(self) -> None: ...
    def start(self) -> None: ...
