"""Which topics are read and written, how large they are, and what is promised of each workload."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
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
    streamed: tuple[Shape, ...]
    loaded: tuple[Shape, ...]
    sunk: tuple[Shape, ...]
    data_bytes: int
    rows_max: int
    latency_s: float

    def rows(self, shape: Shape) -> int:
        return min(self.rows_max, self.data_bytes // shape.value_bytes)


FULL: Final = Sizes(
    read=tuple(
        Shape(kind, value_bytes, codec)
        for codec, value_bytes, kind in product((PLAIN, LZ4, ZSTD), (100, USUAL_BYTES, 1024), (FIXED, VARIABLE))
    ),
    streamed=(Shape(FIXED, USUAL_BYTES, PLAIN), Shape(VARIABLE, USUAL_BYTES, LZ4)),
    loaded=(Shape(FIXED, USUAL_BYTES, PLAIN), Shape(VARIABLE, USUAL_BYTES, LZ4), Shape(VARIABLE, 1024, ZSTD)),
    sunk=(Shape(FIXED, USUAL_BYTES, PLAIN), Shape(VARIABLE, USUAL_BYTES, LZ4), Shape(VARIABLE, 1024, ZSTD)),
    data_bytes=600_000_000,
    rows_max=3_000_000,
    latency_s=20.0,
)
QUICK: Final = Sizes(
    read=(Shape(FIXED, USUAL_BYTES, PLAIN), Shape(VARIABLE, USUAL_BYTES, LZ4)),
    streamed=(Shape(FIXED, USUAL_BYTES, PLAIN),),
    loaded=(Shape(FIXED, USUAL_BYTES, PLAIN),),
    sunk=(Shape(FIXED, USUAL_BYTES, PLAIN),),
    data_bytes=120_000_000,
    rows_max=600_000,
    latency_s=6.0,
)


class Target(NamedTuple):
    """Ours divided by the official connector's; a workload's time is the other way round: at most."""

    floor: float
    aim: float
    is_time: bool = False

    def verdict(self, ratio: float) -> str:
        better = -1 if self.is_time else 1
        if ratio * better >= self.aim * better:
            return "PASS"
        return "FLOOR" if ratio * better >= self.floor * better else "BELOW"


COUNT: Final = "count"
SUM: Final = "sum"
PARQUET: Final = "parquet"
STREAM: Final = "stream"
STREAM_LIMITED: Final = "stream-limited"
LOAD: Final = "load"
SINK: Final = "sink"
LATENCY: Final = "latency"

TARGETS: Final = {
    COUNT: Target(2, 3),
    SUM: Target(2, 3),
    PARQUET: Target(1.5, 2),
    STREAM: Target(1.2, 1.5),
    STREAM_LIMITED: Target(1.2, 1.5),
    LOAD: Target(2, 3),
    SINK: Target(1.8, 2.5),
    LATENCY: Target(1.2, 1.0, is_time=True),
}
