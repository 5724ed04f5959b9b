"""The results as text for people."""

from __future__ import annotations

from typing import Final

from bench.outcome import Line, Results
from bench.scenarios.scenario import BROKER_CPU, MB_PER_S, RECORDS_PER_S, REQUESTS_PER_S, RSS_MB, STARTUP_S
from bench.study import number
from bench.targets import RATIOS, RatioTarget

UNITS: Final = {
    REQUESTS_PER_S: "req/s",
    RECORDS_PER_S: "msg/s",
    MB_PER_S: "MB/s",
    STARTUP_S: "s",
    RSS_MB: "MB",
}
LAYOUT: Final = "{:<23} {:<13} {:>17} {:>19} {:>9} {:>9} {:>7} {:>8} {:>8} {:>7} {:>11} {}"
HEADINGS: Final = LAYOUT.format(
    *("scenario", "peer", "median", "min..max", "p50 ms", "p99 ms", "client", "CPU s/M", "RSS MB", "ratio"),
    *("floor/aim", "verdict"),
)


def line_row(results: Results, line: Line) -> str:
    """One row for one line, with its verdicts where a promise covers it."""
    low, high = line.spread(line.headline)
    medians = line.medians()
    ratio = results.ratio(line, line.headline)
    target = RATIOS.get((line.scenario, line.peer))
    return LAYOUT.format(
        line.scenario,
        line.peer,
        f"{number(medians[line.headline])} {UNITS[line.headline]}",
        f"{number(low)}..{number(high)}",
        _milliseconds(medians.get("p50_us")),
        _milliseconds(medians.get("p99_us")),
        f"{medians['client_cpu_share']:.0%}" if "client_cpu_share" in medians else "",
        f"{medians[BROKER_CPU]:.2f}" if BROKER_CPU in medians else "",
        f"{medians[RSS_MB]:.0f}" if RSS_MB in medians else "",
        f"{ratio:.2f}x" if ratio is not None else "",
        _bounds(target),
        _verdicts(results, line),
    ).rstrip()


def limits_rows(results: Results) -> list[str]:
    return [
        f"machine: page-cache write {limits['page_cache_write_mb_per_s']:.0f} MB/s,"
        f" loopback {limits['loopback_mb_per_s']:.0f} MB/s,"
        f" fdatasync of 4 KiB {limits['fdatasync_4k_p50_ms']:.3f} ms (p50),"
        f" load average {limits['load_average']:.1f}"
        for limits in results.limits
    ]


def whole_table(results: Results) -> str:
    about = "\n".join(f"{name}: {value}" for name, value in results.about.items())
    rows = [line_row(results, line) for line in results.lines]
    legend = [
        "median, min..max: over the rounds.  client: the raw client's share of one core (it never sleeps in -busy",
        "lines).  CPU s/M: the broker's CPU seconds per million records.  ratio: to apache-kafka, which does not",
        "flush before it acknowledges; the median of the rounds' own ratios.  Verdict: PASS the aim is met, FLOOR",
        "only the floor, BELOW not even that.",
    ]
    return "\n".join([about, *limits_rows(results), "", HEADINGS, *rows, "", *legend]) + "\n"


def _verdicts(results: Results, line: Line) -> str:
    judgements = results.judge(line)
    if len(judgements) == 1 and judgements[0].is_ratio:
        return judgements[0].verdict.value
    return ", ".join(
        f"{each.metric} {number(each.value)} (at most {number(each.floor)}): {each.verdict.value}"
        for each in judgements
    )


def _bounds(target: RatioTarget | None) -> str:
    return f"{target.floor:g}x/{target.aim:g}x" if target is not None else ""


def _milliseconds(microseconds: float | None) -> str:
    return f"{microseconds / 1000:.3f}" if microseconds is not None else ""
