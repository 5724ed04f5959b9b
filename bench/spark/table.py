"""The study as Markdown: rates, ratios with their verdicts, and what a row costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.spark.contenders import CONTENDERS, OFFICIAL, OFFICIAL_TUNED, OTTLA
from bench.spark.matrix import LATENCY, LOAD, TARGETS, Target
from bench.study import Observed, markdown_table, number

RATE: Final = "rows_per_s"
TIME: Final = "batch_p50_ms"
OTHERS: Final = (OFFICIAL, OFFICIAL_TUNED)

NOTES: Final = f"""\
Medians, with least and greatest; a ratio is the median of the rounds' own ratios. One Spark session `local[2]` of
`ottla.spark.session`, one broker (policy `os`) on the same machine, topics of four partitions that librdkafka has
filled in batches as large as its default; contenders alternate. `fixed`: values of one size, no keys; `variable`: half
to one and a half of it, keys of 1 to 8 digits. `count`: all columns reach Spark; `sum`: of the values' lengths;
`parquet`: all columns, by Spark's writer; `stream`: a backlog to `noop`, available now, `stream-limited` in about six
micro-batches; `{LOAD}`: Ottla into a new Delta table, the official one to Parquet; `sink`: from Parquet files;
`{LATENCY}`: the time of a micro-batch over 1,000 records a second, to `noop`. `{OFFICIAL_TUNED}`:
{", ".join(f"`{name}={value}`" for name, value in CONTENDERS[OFFICIAL_TUNED].read.items())}; writing
{", ".join(f"`{name}={value}`" for name, value in CONTENDERS[OFFICIAL_TUNED].write.items())}."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Ours divided by another's, in one scenario."""

    scenario: str
    other: str
    ratio: float
    target: Target

    @property
    def is_below(self) -> bool:
        return self.target.verdict(self.ratio) == "BELOW"

    @property
    def text(self) -> str:
        promise = f"floor {self.target.floor:g}x, aim {self.target.aim:g}x"
        return f"{self.ratio:.2f}x of {self.other} ({promise}): {self.target.verdict(self.ratio)}"


def target_of(scenario: str) -> Target:
    """Of the longest workload's name with which the scenario begins."""
    return TARGETS[max((name for name in TARGETS if f"{scenario}-".startswith(f"{name}-")), key=len)]


def judgements(observed: Observed) -> list[Judgement]:
    found = []
    for scenario in observed.scenarios():
        for other in OTHERS:
            ratio = observed.paired_ratio(scenario, OTTLA, other, _metric(scenario))
            if ratio is not None:
                found.append(Judgement(scenario, other, ratio, target_of(scenario)))
    return found


def spark_table(observed: Observed) -> str:
    parts = [_rates(observed), _costs(observed), _latencies(observed)]
    shown = [part for part in parts if part]
    return "\n\n".join([*shown, NOTES]) if shown else "Nothing was measured."


def _metric(scenario: str) -> str:
    return TIME if scenario == LATENCY else RATE


def _rates(observed: Observed) -> str:
    verdicts = {(each.scenario, each.other): each for each in judgements(observed)}
    rows = []
    for scenario in observed.scenarios():
        if scenario != LATENCY:
            rates = [_with_spread(observed, scenario, name, RATE, 1e6) for name in CONTENDERS]
            ratios = [_ratio(verdicts.get((scenario, other))) for other in OTHERS]
            target = target_of(scenario)
            rows.append([scenario, *rates, *ratios, f"{target.aim:g}x / {target.floor:g}x"])
    if not rows:
        return ""
    headings = ("scenario", *CONTENDERS, *(f"ottla ÷ {name}" for name in OTHERS), "aim / floor")
    return f"## Millions of rows a second\n\n{markdown_table(headings, rows)}"


def _costs(observed: Observed) -> str:
    metrics = ("jvm_cpu_us_per_row", "python_cpu_us_per_row", "broker_cpu_us_per_row")
    rows = [
        [scenario, name, *(number(observed.median(scenario, name, metric)) for metric in metrics)]
        for scenario in observed.scenarios()
        for name in CONTENDERS
        if scenario != LATENCY and (scenario, name) in observed.rounds
    ]
    if not rows:
        return ""
    headings = ("scenario", "source", "JVM µs/row", "Python µs/row", "broker µs/row")
    return f"## Processor time\n\n{markdown_table(headings, rows)}"


def _latencies(observed: Observed) -> str:
    verdicts = {each.other: each for each in judgements(observed) if each.scenario == LATENCY}
    rows = []
    for name in CONTENDERS:
        if (LATENCY, name) in observed.rounds:
            cells = [_with_spread(observed, LATENCY, name, metric) for metric in (TIME, "batch_p99_ms", "cpu_share")]
            rows.append([name, *cells, _ratio(verdicts.get(name))])
    if not rows:
        return ""
    target = TARGETS[LATENCY]
    headings = ("source", "p50 ms", "p99 ms", "processors busy", f"ottla ÷ it (aim {target.aim:g}x)")
    return f"## Time of a micro-batch\n\n{markdown_table(headings, rows)}"


def _ratio(judged: Judgement | None) -> str:
    return "-" if judged is None else f"{judged.ratio:.2f}x {judged.target.verdict(judged.ratio)}"


def _with_spread(observed: Observed, scenario: str, contender: str, metric: str, unit: float = 1.0) -> str:
    middle, spread = observed.median(scenario, contender, metric), observed.spread(scenario, contender, metric)
    if middle is None or spread is None:
        return "-"
    low, high = spread
    text = number(middle / unit)
    return text if low == high else f"{text} ({number(low / unit)}..{number(high / unit)})"
