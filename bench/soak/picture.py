"""The minutes as a picture: memory, descriptors and latency below each other, in plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from bench.soak.drift import Minute

WIDTH: Final = 860
LEFT: Final = 60
RIGHT: Final = 170
CHART_HEIGHT: Final = 150
CHART_GAP: Final = 60
TOP: Final = 46
TICKS: Final = 4
FONT: Final = 'font-family="sans-serif" font-size="12"'
COLOURS: Final = ("#1f6feb", "#d1495b", "#2e8b57", "#8a5cc2", "#b8860b")

Series = Sequence[float | None]


class Chart(NamedTuple):
    title: str
    lines: Mapping[str, Series]
    is_logarithmic: bool = False


def picture(minutes: Sequence[Minute], title: str) -> str:
    """A whole SVG document.  Kills are the marks on the axis of the latency."""
    names = list(minutes[0].processes) if minutes else []
    charts = (
        Chart("resident memory, MB", {name: _of(minutes, name, "memory_mb") for name in names}),
        Chart("open descriptors", {name: _of(minutes, name, "descriptors") for name in names}),
        Chart(
            "produce latency, ms",
            {
                "p50": [minute.p50_ms for minute in minutes],
                "p99": [minute.p99_ms for minute in minutes],
                "worst": [minute.max_ms for minute in minutes],
            },
            is_logarithmic=True,
        ),
    )
    height = TOP + len(charts) * (CHART_HEIGHT + CHART_GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for index, chart in enumerate(charts):
        parts += _chart(chart, TOP + index * (CHART_HEIGHT + CHART_GAP), len(minutes))
    bottom = TOP + (len(charts) - 1) * (CHART_HEIGHT + CHART_GAP) + CHART_HEIGHT
    for index, minute in enumerate(minutes):
        if minute.counts.get("kills", 0) > 0:
            x = _x(index, len(minutes))
            parts.append(f'<path d="M{x:.1f} {bottom} l-4 8 l8 0 z" fill="#555555"><title>kill</title></path>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _of(minutes: Sequence[Minute], name: str, figure: str) -> list[float | None]:
    return [getattr(minute.processes[name], figure) if name in minute.processes else None for minute in minutes]


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (index / max(1, count - 1))


def _chart(chart: Chart, top: float, count: int) -> list[str]:
    known = [value for line in chart.lines.values() for value in line if value is not None]
    bottom = top + CHART_HEIGHT
    low, high = _bounds(known, chart.is_logarithmic)

    def y(value: float) -> float:
        if chart.is_logarithmic:
            share = math.log(max(value, low) / low) / math.log(high / low)
        else:
            share = (value - low) / (high - low)
        return bottom - share * CHART_HEIGHT

    parts = [f'<text x="{LEFT}" y="{top - 8}" fill="#333333">{escape(chart.title)}</text>']
    for tick in _ticks(low, high, chart.is_logarithmic):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f} H{WIDTH - RIGHT}" stroke="#dddddd" fill="none"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555555">{tick:,.4g}</text>')
    for place, (name, line) in enumerate(chart.lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        for run in _runs(line):
            points = " ".join(f"{_x(index, count):.1f},{y(value):.1f}" for index, value in run)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{top + 14 + 18 * place}" fill="{colour}">{escape(name)}</text>'
        )
    parts += [
        f'<text x="{_x(each, count):.1f}" y="{bottom + 22}" text-anchor="middle" fill="#555555">{each + 1} min</text>'
        for each in sorted({0, count // 2, max(0, count - 1)})
    ]
    return parts


def _bounds(known: Sequence[float], is_logarithmic: bool) -> tuple[float, float]:
    """From zero, or by powers of ten; never empty."""
    if is_logarithmic:
        low = 10 ** math.floor(math.log10(max(min(known, default=1.0), 0.01)))
        high = 10 ** math.ceil(math.log10(max(max(known, default=10.0), 0.1)))
        return low, high if high > low else low * 10
    most = max(max(known, default=1.0), 1.0)
    # A round step: 1, 2, 2.5 or 5 times a power of ten.
    power = 10 ** math.floor(math.log10(most / TICKS))
    step = next(share * power for share in (1, 2, 2.5, 5, 10) if share * power * TICKS >= most)
    return 0.0, step * TICKS


def _ticks(low: float, high: float, is_logarithmic: bool) -> list[float]:
    if is_logarithmic:
        return [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    return [low + (high - low) * step / TICKS for step in range(TICKS + 1)]


def _runs(line: Series) -> list[list[tuple[int, float]]]:
    """The parts of a line without a gap, each value with its index."""
    runs: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(line):
        if value is not None:
            runs[-1].append((index, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
