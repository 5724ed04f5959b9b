"""Which loads are run: sizes, codecs and partitions, and who runs each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

from bench.client.contenders.names import (
    AIOKAFKA_ITERATION,
    CONFLUENT_LARGE,
    CONFLUENT_POLL,
    CONSUME,
    KAFKA_PYTHON_ITERATION,
    OTTLA_MANY,
    OTTLA_POLL,
    PRODUCE,
    WAYS,
)
from bench.client.job import PLAIN

LZ4: Final = "lz4"
ZSTD: Final = "zstd"
# The paper's: every way of each client is compared with it, in one partition.
USUAL_BYTES: Final = 200
# Ways that are shown beside the best one of their client, not everywhere.
OTHER_WAYS: Final = frozenset(
    {CONFLUENT_POLL, CONFLUENT_LARGE, KAFKA_PYTHON_ITERATION, AIOKAFKA_ITERATION, OTTLA_POLL, OTTLA_MANY}
)


class Shape(NamedTuple):
    """Messages of `value_bytes` in a topic of `partitions`."""

    value_bytes: int
    codec: str
    partitions: int

    def scenario(self, mode: str) -> str:
        return f"{mode}-{self.value_bytes}-{self.codec}-p{self.partitions}"

    def contenders(self, mode: str) -> list[str]:
        """In the order of the tables."""
        has_all = self.value_bytes == USUAL_BYTES and self.partitions == 1
        return [name for name in WAYS[mode] if has_all or name not in OTHER_WAYS]


@dataclass(frozen=True, slots=True)
class Sizes:
    value_bytes: tuple[int, ...]
    # (codec, partitions)
    forms: tuple[tuple[str, int], ...]
    seconds: float
    """How long a producer sends."""
    consumed_bytes: int
    """What a topic holds that is read by the fast clients, before compression."""
    consumed_messages_max: int
    latency_s: float

    def shapes(self) -> Iterator[Shape]:
        for (codec, partitions), value_bytes in product(self.forms, self.value_bytes):
            yield Shape(value_bytes, codec, partitions)

    def consumed_messages(self, value_bytes: int) -> int:
        return min(self.consumed_messages_max, self.consumed_bytes // value_bytes)


FULL: Final = Sizes(
    value_bytes=(100, USUAL_BYTES, 1024),
    forms=((PLAIN, 1), (LZ4, 1), (ZSTD, 1), (PLAIN, 8), (ZSTD, 8)),
    seconds=0.6,
    consumed_bytes=400_000_000,
    consumed_messages_max=600_000,
    latency_s=3.0,
)
QUICK: Final = Sizes(
    value_bytes=(USUAL_BYTES,),
    forms=((PLAIN, 1), (ZSTD, 1)),
    seconds=0.4,
    consumed_bytes=40_000_000,
    consumed_messages_max=200_000,
    latency_s=2.0,
)
MODES: Final = (PRODUCE, CONSUME)
