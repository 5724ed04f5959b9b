"""The study as Markdown: rates, ratios with their verdicts, and what a row costs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

from bench.spark.backlog_table import BACKLOG, delays_table, memory_table
from bench.spark.busy_host import BUSY_PROCESSES
from bench.spark.contenders import CONTENDERS, OFFICIAL, OFFICIAL_TUNED, OTTLA, OTTLA_TUNED
from bench.spark.matrix import AIM_MET, BUSY, FLOOR_MISSED, LATENCY, LOAD, TARGETS, Target
from bench.study import Observed, markdown_table, number, times, with_spread

RATE: Final = "rows_per_s"
ALL_CPU: Final = "cpu_us_per_row"
TIME: Final = "batch_p50_ms"
OTHERS: Final = (OFFICIAL, OFFICIAL_TUNED)

NOTES: Final = f"""\
Medians, with least and greatest; a ratio is the median of the rounds' own ratios. One Spark session `local[2]` of
`ottla.spark.session`, one broker (policy `os`) on the same machine, topics of four partitions that librdkafka has
filled in batches as large as its default; contenders alternate. `fixed`: values of one size, no keys; `variable`: half
to one and a half of it, keys of 1 to 8 digits. `count`: all columns reach Spark; `sum`: of the values' lengths;
`parquet`: all columns, by Spark's writer; `stream`: a backlog to `noop`, available now, `stream-limited` in about six
micro-batches; `{LOAD}`: Ottla into a new Delta table, the official one to Parquet; `sink`: from Parquet files;
`{LATENCY}`: the time of a micro-batch over 1,000 records a second, to `noop`; `{BUSY}-`: beside
{BUSY_PROCESSES} processes that never sleep, fewer rows. `{OFFICIAL_TUNED}`:
{", ".join(f"`{name}={value}`" for name, value in CONTENDERS[OFFICIAL_TUNED].read.items())}; writing
{", ".join(f"`{name}={value}`" for name, value in CONTENDERS[OFFICIAL_TUNED].write.items())}. `{OTTLA_TUNED}`, of
writes only: {", ".join(f"`{name}={value}`" for name, value in CONTENDERS[OTTLA_TUNED].session.items())}."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Ours divided by another's, in one scenario."""

    scenario: str
    other: str
    ratio: float
    target: Target

    @property
    def is_below(self) -> bool:
        return self.verdict == FLOOR_MISSED

    @property
    def verdict(self) -> str:
        return self.target.verdict(self.ratio)

    @property
    def text(self) -> str:
        promise = f"floor {self.target.floor:g}x, aim {self.target.aim:g}x"
        return f"{self.ratio:.2f}x of {self.other} ({promise}): {self.verdict}"


def workload_of(scenario: str) -> str:
    """The longest name of a workload with which the scenario begins."""
    return max((name for name in TARGETS if f"{scenario}-".startswith(f"{name}-")), key=len)


def compared(observed: Observed) -> list[str]:
    """The scenarios in which others are measured, too."""
    return [scenario for scenario in observed.scenarios() if not scenario.startswith(BACKLOG)]


def judgements(observed: Observed) -> list[Judgement]:
    found = []
    for scenario in compared(observed):
        for other in OTHERS:
            ratio = observed.paired_ratio(scenario, OTTLA, other, _metric(scenario))
            if ratio is not None:
                found.append(Judgement(scenario, other, ratio, TARGETS[workload_of(scenario)]))
    return found


def missed_floors(observed: Observed) -> list[str]:
    return [f"{each.scenario}: {each.text}" for each in judgements(observed) if each.is_below]


def spark_table(observed: Observed) -> str:
    parts = (_summary, _rates, _latencies, memory_table, delays_table, _costs)
    shown = [text for text in (part(observed) for part in parts) if text]
    return "\n\n".join([*shown, NOTES]) if shown else "Nothing was measured."


def _metric(scenario: str) -> str:
    return TIME if scenario == LATENCY else RATE


def _summary(observed: Observed) -> str:
    """Each workload over all its scenarios."""
    judged: dict[tuple[str, str], list[Judgement]] = {}
    for each in judgements(observed):
        judged.setdefault((workload_of(each.scenario), each.other), []).append(each)
    rows = []
    for workload, target in TARGETS.items():
        for other in OTHERS:
            if found := judged.get((workload, other)):
                ratios = [each.ratio for each in found]
                middle = statistics.median(ratios)
                aims = sum(each.verdict == AIM_MET for each in found)
                floors = sum(not each.is_below for each in found)
                spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
                cells = [
                    f"{limit:g}x: met in {count} of {len(found)}"
                    for limit, count in ((target.aim, aims), (target.floor, floors))
                ]
                rows.append([workload, other, f"{middle:.2f}x", spread, target.verdict(middle), *cells])
    if not rows:
        return ""
    headings = ("workload", "beside", "median of its scenarios", "least..greatest", "verdict", "aim", "floor")
    return f"## Aims and floors: Ottla divided by the other (micro-batch: its time)\n\n{markdown_table(headings, rows)}"


def _rates(observed: Observed) -> str:
    verdicts = {(each.scenario, each.other): each for each in judgements(observed)}
    rows = []
    for scenario in compared(observed):
        if scenario != LATENCY:
            rates = [with_spread(observed, scenario, name, RATE, 1e6) for name in CONTENDERS]
            ratios = [_ratio(verdicts.get((scenario, other))) for other in OTHERS]
            ratios.append(times(observed.paired_ratio(scenario, OTTLA_TUNED, OFFICIAL_TUNED, RATE)))
            target = TARGETS[workload_of(scenario)]
            rows.append([scenario, *rates, *ratios, f"{target.aim:g}x / {target.floor:g}x"])
    if not rows:
        return ""
    both_tuned = f"{OTTLA_TUNED} ÷ {OFFICIAL_TUNED}"
    headings = ("scenario", *CONTENDERS, *(f"ottla ÷ {name}" for name in OTHERS), both_tuned, "aim / floor")
    return f"## Millions of rows a second\n\n{markdown_table(headings, rows)}"


def _costs(observed: Observed) -> str:
    metrics = ("jvm_cpu_us_per_row", "python_cpu_us_per_row", "broker_cpu_us_per_row")
    rows = [
        [scenario, name, *(number(observed.median(scenario, name, metric)) for metric in (*metrics, ALL_CPU))]
        for scenario in compared(observed)
        for name in CONTENDERS
        if scenario != LATENCY and (scenario, name) in observed.rounds
    ]
    if not rows:
        return ""
    headings = ("scenario", "source", "JVM µs/row", "Python µs/row", "broker µs/row", "together")
    return f"## Processor time\n\n{markdown_table(headings, rows)}"


def _latencies(observed: Observed) -> str:
    verdicts = {each.other: each for each in judgements(observed) if each.scenario == LATENCY}
    rows = []
    for name in CONTENDERS:
        if (LATENCY, name) in observed.rounds:
            cells = [with_spread(observed, LATENCY, name, metric) for metric in (TIME, "batch_p99_ms", "cpu_share")]
            rows.append([name, *cells, _ratio(verdicts.get(name))])
    if not rows:
        return ""
    target = TARGETS[LATENCY]
    headings = ("source", "p50 ms", "p99 ms", "processors busy", f"ottla ÷ it (aim {target.aim:g}x)")
    return f"## Time of a micro-batch\n\n{markdown_table(headings, rows)}"


def _ratio(judged: Judgement | None) -> str:
    return "-" if judged is None else f"{judged.ratio:.2f}x, {judged.verdict}"
