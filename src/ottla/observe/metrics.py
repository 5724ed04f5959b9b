"""Metrics for Prometheus: families of samples that are read at a scrape, and histograms.

    def partitions() -> Iterator[Family]:
        yield gauge("kafka_server_replicamanager_partitioncount", "Partitions of this broker.", len(table))

    registry = CollectorRegistry()
    registry.add(partitions)
    "".join(registry.chunks())

The hot path only counts in plain integers; a collector turns them into families at a scrape.  Names are
those that Apache Kafka's JMX exporter gives to the same metrics, where there are such.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Of one family: a scrape has a bounded size for any number of topics and groups.
SAMPLES_MAX: Final = 20_000
# Samples in one chunk of the text: about a millisecond of work.
CHUNK_SAMPLES: Final = 500

# Upper bounds in milliseconds, inclusive, as Prometheus wants them; one more bucket is for all above.
LATENCY_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*\Z", re.ASCII)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

Kind = Literal["counter", "gauge", "histogram"]
Number = int | float
LabelValues = TypeVar("LabelValues", bound=tuple[str, ...])


class Histogram:
    """Counts of observations in fixed buckets, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_MS) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds rise"
        self.bounds: Final = tuple(bounds)
        # By bucket, not cumulative; the last is above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`; `times` is its weight, for a value from a sample."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Family(NamedTuple):
    """All samples of one name: (label values, value), in the order of `labels`."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...]
    samples: Iterable[tuple[tuple[str, ...], Number | Histogram]]


class Pause(Enum):
    """A long collector yields it now and then, so that others run before it continues."""

    PAUSE = 0


PAUSE: Final = Pause.PAUSE
Collector = Callable[[], Iterable[Family | Pause]]


def counter(
    name: str, about: str, readings: Number | Mapping[LabelValues, Number], labels: tuple[str, ...] = ()
) -> Family:
    """A number that only rises while the process runs.  With `labels`, `readings` maps their values to numbers."""
    return Family(name, "counter", about, labels, _samples(readings))


def gauge(
    name: str, about: str, readings: Number | Mapping[LabelValues, Number], labels: tuple[str, ...] = ()
) -> Family:
    """A number that rises and falls.  With `labels`, `readings` maps their values to numbers."""
    return Family(name, "gauge", about, labels, _samples(readings))


def histogram(
    name: str, about: str, readings: Histogram | Mapping[LabelValues, Histogram], labels: tuple[str, ...] = ()
) -> Family:
    if isinstance(readings, Histogram):
        return Family(name, "histogram", about, labels, [((), readings)])
    return Family(name, "histogram", about, labels, readings.items())


def _samples(readings: Number | Mapping[LabelValues, Number]) -> Iterable[tuple[tuple[str, ...], Number]]:
    return readings.items() if isinstance(readings, Mapping) else [((), readings)]


class CollectorRegistry:
    """The collectors of a process; each is called at every scrape."""

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._collectors: list[Collector] = []
        self._samples_max = samples_max

    def add(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def chunks(self) -> Iterator[str]:
        """The metrics as Prometheus reads them (text format 0.0.4), in parts of bounded work.

        What a collector yields is rendered later than it was read: it must not change meanwhile.
        """
        names: set[str] = set()
        left_out: dict[tuple[str, ...], Number] = {}
        for collector in self._collectors:
            for family in collector():
                if family is PAUSE:
                    yield ""
                    continue
                assert family.name not in names, f"two collectors have {family.name}"
                names.add(family.name)
                samples = iter(family.samples)
                yield from _rendered(family, islice(samples, self._samples_max))
                too_many = sum(1 for _ in samples)
                if too_many:
                    left_out[(family.name,)] = too_many
        about = "Samples that were left out of this scrape, by family: it has a bounded size."
        yield from _rendered(family := gauge("ottla_samples_left_out", about, left_out, ("family",)), family.samples)


def _rendered(family: Family, samples: Iterable[tuple[tuple[str, ...], Number | Histogram]]) -> Iterator[str]:
    assert _NAME.match(family.name), f"{family.name} is no name of a metric"
    lines = [f"# HELP {family.name} {_help(family.about)}", f"# TYPE {family.name} {family.kind}"]
    for values, value in samples:
        assert len(values) == len(family.labels), f"{family.name} has the labels {family.labels}"
        pairs = [f'{label}="{text.translate(_ESCAPES)}"' for label, text in zip(family.labels, values, strict=True)]
        if isinstance(value, Histogram):
            lines += _histogram_lines(family.name, pairs, value)
        else:
            lines.append(f"{family.name}{_braced(pairs)} {_number(value)}")
        if len(lines) >= CHUNK_SAMPLES:
            yield "\n".join(lines) + "\n"
            lines.clear()
    if lines:
        yield "\n".join(lines) + "\n"


def _histogram_lines(name: str, pairs: list[str], value: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        below += count
        le = f'le="{_number(bound)}"'
        yield f"{name}_bucket{_braced([*pairs, le])} {below}"
    yield f"{name}_sum{_braced(pairs)} {_number(value.total)}"
    yield f"{name}_count{_braced(pairs)} {below}"


def _braced(pairs: Sequence[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _help(about: str) -> str:
    return about.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
