"""Which topics are read and written, how large they are, and what is promised of each workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from bench.client.job import PLAIN
from bench.client.matrix import LZ4, USUAL_BYTES, ZSTD

FIXED: Final = "fixed"
VARIABLE: Final = "variable"
# As in the measurement of a limited stream: a sixth of the topic.
TRIGGERS_OF_BACKLOG: Final = 6


class Shape(NamedTuple):
    """`fixed`: values of `value_bytes`, no keys.  `variable`: half to one and a half of that, keys of 1 to 8 digits."""

    kind: str
    value_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        return f"{self.kind}-{self.value_bytes}-{self.codec}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """`data_bytes`: of a topic before compression, at most `rows_max` records."""

    read: tuple[Shape, ...]
    to_parquet: tuple[Shape, ...]
    """Some of those that are read."""
    streamed: tuple[Shape, ...]
    loaded: tuple[Shape, ...]
    sunk: tuple[Shape, ...]
    busy: tuple[Shape, ...]
    """Read and sunk while the host is busy, with fewer records."""
    data_bytes: int
    rows_max: int
    sunk_bytes: int
    busy_bytes: int
    latency_s: float

    def rows(self, shape: Shape) -> int:
        return min(self.rows_max, self.data_bytes // shape.value_bytes)

    def sunk_rows(self, shape: Shape) -> int:
        return min(self.rows_max, self.sunk_bytes // shape.value_bytes)

    def busy_rows(self, shape: Shape) -> int:
        return self.busy_bytes // shape.value_bytes


# Each size with each codec, and both kinds with each of them.
_READ: Final = (
    Shape(FIXED, 100, PLAIN),
    Shape(VARIABLE, 100, LZ4),
    Shape(FIXED, 100, ZSTD),
    Shape(FIXED, USUAL_BYTES, PLAIN),
    Shape(VARIABLE, USUAL_BYTES, LZ4),
    Shape(VARIABLE, USUAL_BYTES, ZSTD),
    Shape(VARIABLE, 1024, PLAIN),
    Shape(FIXED, 1024, LZ4),
    Shape(VARIABLE, 1024, ZSTD),
)
_PLAIN: Final = Shape(FIXED, USUAL_BYTES, PLAIN)
_USUAL: Final = Shape(VARIABLE, USUAL_BYTES, LZ4)
_LARGE: Final = Shape(FIXED, 1024, PLAIN)

FULL: Final = Sizes(
    read=_READ,
    # The slowest to read, so not all shapes.
    to_parquet=(Shape(FIXED, 100, PLAIN), _PLAIN, _USUAL, Shape(VARIABLE, USUAL_BYTES, ZSTD), Shape(FIXED, 1024, LZ4)),
    streamed=(_PLAIN, _USUAL),
    loaded=(_PLAIN, _USUAL),
    sunk=(_PLAIN, _USUAL, _LARGE, Shape(VARIABLE, 1024, LZ4)),
    busy=(_PLAIN, _USUAL, _LARGE),
    # Ottla's shortest read takes one and a half to two seconds then on two cores.
    data_bytes=1_600_000_000,
    rows_max=4_000_000,
    # Each contender writes it in each round: the disk must keep up with what the page cache gets.
    sunk_bytes=800_000_000,
    # A busy host leaves a fifth or less of its processors.
    busy_bytes=200_000_000,
    latency_s=15.0,
)
QUICK: Final = Sizes(
    read=(_PLAIN, _USUAL),
    to_parquet=(_PLAIN, _USUAL),
    streamed=(_PLAIN,),
    loaded=(_PLAIN,),
    sunk=(_PLAIN,),
    busy=(_PLAIN,),
    data_bytes=120_000_000,
    rows_max=600_000,
    sunk_bytes=120_000_000,
    busy_bytes=40_000_000,
    latency_s=6.0,
)


AIM_MET: Final = "aim met"
FLOOR_MET: Final = "floor met"
FLOOR_MISSED: Final = "floor missed"


class Target(NamedTuple):
    """Ours divided by the official connector's; a workload's time is the other way round: at most."""

    floor: float
    aim: float
    is_time: bool = False

    def verdict(self, ratio: float) -> str:
        better = -1 if self.is_time else 1
        if ratio * better >= self.aim * better:
            return AIM_MET
        return FLOOR_MET if ratio * better >= self.floor * better else FLOOR_MISSED


COUNT: Final = "count"
SUM: Final = "sum"
PARQUET: Final = "parquet"
STREAM: Final = "stream"
STREAM_LIMITED: Final = "stream-limited"
LOAD: Final = "load"
SINK: Final = "sink"
BUSY: Final = "busy"
BUSY_SUM: Final = f"{BUSY}-{SUM}"
BUSY_SINK: Final = f"{BUSY}-{SINK}"
LATENCY: Final = "latency"

TARGETS: Final = {
    COUNT: Target(2, 3),
    SUM: Target(2, 3),
    PARQUET: Target(1.5, 2),
    STREAM: Target(1.2, 1.5),
    STREAM_LIMITED: Target(1.2, 1.5),
    LOAD: Target(2, 3),
    SINK: Target(1.8, 2.5),
    BUSY_SUM: Target(1.5, 2),
    BUSY_SINK: Target(1.2, 2),
    LATENCY: Target(1.2, 1.0, is_time=True),
}
