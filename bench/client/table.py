"""The clients side by side as Markdown: rates, ratios, costs, latency; and the paper's own figures."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from bench.client.contenders.names import (
    AIOKAFKA,
    AIOKAFKA_ITERATION,
    CONFLUENT,
    CONFLUENT_LARGE,
    CONFLUENT_POLL,
    CONSUME,
    KAFKA_PYTHON,
    KAFKA_PYTHON_ITERATION,
    LATENCY,
    OTTLA,
    OTTLA_MANY,
    OTTLA_POLL,
    OTTLA_SETS,
    PRODUCE,
)
from bench.client.job import BATCH_BYTES, BUFFER_BYTES, LINGER_MS, MESSAGES_PER_LOOK, SET_MESSAGES
from bench.client.matrix import USUAL_BYTES, Shape
from bench.study import Observed, markdown_table, number, times, with_spread

RATE: Final = "messages_per_s"

# A scenario of the matrix: its mode, bytes, codec, partitions.
_SCENARIO: Final = re.compile(r"(\w+)-(\d+)-(\w+)-p(\d+)")


class Ratio(NamedTuple):
    """`ours` divided by `theirs` must be at least `aim`."""

    ours: str
    theirs: str
    aim: float


class Rates(NamedTuple):
    """One table: a column for each contender, and what is compared with what."""

    mode: str
    title: str
    columns: dict[str, str]
    ratios: tuple[Ratio, ...]
    paper: tuple[str, ...]
    """The paper's row, a cell for each column."""


PRODUCED: Final = Rates(
    mode=PRODUCE,
    title="Produced, messages/s",
    columns={
        OTTLA: "ottla `send(one)`",
        OTTLA_SETS: f"ottla `send({SET_MESSAGES})`",
        CONFLUENT: CONFLUENT,
        KAFKA_PYTHON: KAFKA_PYTHON,
        AIOKAFKA: AIOKAFKA,
    },
    ratios=(
        Ratio(OTTLA, CONFLUENT, 1.0),
        Ratio(OTTLA_SETS, CONFLUENT, 1.0),
        Ratio(OTTLA, KAFKA_PYTHON, 3.0),
        Ratio(OTTLA, AIOKAFKA, 3.0),
    ),
    paper=("50,000", "400,000", "-", "-", "-"),
)
CONSUMED: Final = Rates(
    mode=CONSUME,
    title="Consumed, messages/s",
    columns={
        OTTLA: "ottla `for`",
        CONFLUENT: f"{CONFLUENT} `consume(1000)`",
        KAFKA_PYTHON: f"{KAFKA_PYTHON} `poll()`",
        AIOKAFKA: f"{AIOKAFKA} `getmany()`",
    },
    ratios=(Ratio(OTTLA, CONFLUENT, 1.0), Ratio(OTTLA, KAFKA_PYTHON, 3.0), Ratio(OTTLA, AIOKAFKA, 3.0)),
    paper=("22,000", "-", "-", "-"),
)
# Of the usual size in one partition, other ways to use the same clients.
OTHER_WAYS: Final = (
    (PRODUCE, CONFLUENT_POLL, f"{CONFLUENT}, `poll(0)` after each `produce()`", OTTLA),
    (PRODUCE, CONFLUENT_LARGE, f"{CONFLUENT}, batches of 1 MB", OTTLA),
    (CONSUME, OTTLA_POLL, "ottla's `Consumer`, `poll()` for each", OTTLA),
    (CONSUME, OTTLA_MANY, "ottla's `Consumer`, `poll_many(1000)`", OTTLA),
    (CONSUME, CONFLUENT_POLL, f"{CONFLUENT}, `poll()` for each", OTTLA),
    (CONSUME, KAFKA_PYTHON_ITERATION, f"{KAFKA_PYTHON}, `for`", OTTLA),
    (CONSUME, AIOKAFKA_ITERATION, f"{AIOKAFKA}, `async for`", OTTLA),
)
PRODUCERS_NOTE: Final = f"""\
All producers: acks=all, idempotent, batches of {BATCH_BYTES >> 10} KiB, linger {LINGER_MS} ms; those that have such a
bound buffer {BUFFER_BYTES >> 20} MiB; the clock stops when everything is acknowledged, and the broker is asked how many
it has. confluent-kafka counts its deliveries by a callback and polls every {MESSAGES_PER_LOOK} messages; ottla's `send`
returns a delivery for each message or set; the futures of kafka-python and aiokafka are not looked at. Compression
levels are each client's default (aiokafka's lz4: 9)."""
NOTES: Final = f"""\
Medians, with least and greatest; a ratio is the median of the rounds' own ratios, and one that misses its aim is in
bold. Each load is a process of its own, on one machine with the broker; processors are not pinned. Values are lines of
an activity log, without keys.

{PRODUCERS_NOTE}

Consumers are the only member of a new group, check the batches' checksums, and commit every 5 s; each reads the same
topic to its end, touches each message's value, and must have the right count and sum; kafka-python, and aiokafka where
it iterates, read an eighth of it. The clock starts with the first message. confluent-kafka has
`fetch.queue.backoff.ms` 5: with its default it stands still for a second whenever 100,000 messages wait.

The paper's figures are of its own machines in 2011: a producer in batches of 1 and 50, without acknowledgements, and a
consumer."""


def client_table(observed: Observed) -> str:
    parts = [_rates(observed, PRODUCED), _rates(observed, CONSUMED), _other_ways(observed), _costs(observed)]
    shown = [part for part in (*parts, _latencies(observed)) if part]
    return "\n\n".join([*shown, NOTES]) if shown else "Nothing was measured."


def ratio(observed: Observed, scenario: str, compared: Ratio) -> float | None:
    """The median over the rounds that both have of one's rate divided by the other's."""
    return observed.paired_ratio(scenario, compared.ours, compared.theirs, RATE)


def _rates(observed: Observed, rates: Rates) -> str:
    rows = []
    for scenario in observed.scenarios():
        found = _SCENARIO.fullmatch(scenario)
        if found is None or found[1] != rates.mode:
            continue
        cells = [with_spread(observed, scenario, contender, RATE) for contender in rates.columns]
        ratios = [_ratio(observed, scenario, compared) for compared in rates.ratios]
        if any(cell != "-" for cell in cells):
            rows.append([_shape_text(found), *cells, *ratios])
    if not rows:
        return ""
    titles = {**rates.columns, OTTLA: "send(one)" if OTTLA_SETS in rates.columns else "ottla"}
    headings = [f"{_name(each.ours, titles)} ÷ {each.theirs} (aim {each.aim:g}x)" for each in rates.ratios]
    rows.append([f"the paper, {USUAL_BYTES} B", *rates.paper, *("-" for _ in rates.ratios)])
    return f"## {rates.title}\n\n{markdown_table(('messages', *rates.columns.values(), *headings), rows)}"


def _name(contender: str, titles: dict[str, str]) -> str:
    return titles[contender].removeprefix("ottla ").replace("`", "")


def _other_ways(observed: Observed) -> str:
    rows = []
    for scenario in observed.scenarios():
        found = _SCENARIO.fullmatch(scenario)
        for mode, contender, title, ours in OTHER_WAYS:
            if found is not None and found[1] == mode and (scenario, contender) in observed.rounds:
                cells = [with_spread(observed, scenario, name, RATE) for name in (contender, ours)]
                value = ratio(observed, scenario, Ratio(ours, contender, 0.0))
                rows.append([f"{mode}, {_shape_text(found)}", title, *cells, times(value)])
    if not rows:
        return ""
    table = markdown_table(("messages", "way", "messages/s", "ottla, one by one", "ottla ÷ it"), rows)
    return f"## Other ways to use these clients\n\n{table}"


def _costs(observed: Observed) -> str:
    """Of the usual size in one partition."""
    rows = []
    for scenario in observed.scenarios():
        found = _SCENARIO.fullmatch(scenario)
        if found is None or Shape(USUAL_BYTES, found[3], 1).scenario(found[1]) != scenario:
            continue
        for contender in observed.peers():
            if (scenario, contender) in observed.rounds:
                cells = [with_spread(observed, scenario, contender, name) for name in ("cpu_us_per_message", "peak_mb")]
                share = number(observed.median(scenario, contender, "cpu_share"))
                broker = number(observed.median(scenario, contender, "broker_cpu_us_per_message"))
                rows.append([f"{found[1]}, {_shape_text(found)}", contender, *cells, share, broker])
    if not rows:
        return ""
    headings = (
        "messages",
        "client",
        "its CPU µs/message",
        "peak memory MB",
        "processors busy",
        "broker CPU µs/message",
    )
    return f"## What it costs the client's process\n\n{markdown_table(headings, rows)}"


def _latencies(observed: Observed) -> str:
    metrics = ("p50_ms", "p99_ms", "max_ms", "cpu_share", "peak_mb")
    rows = [
        [contender, *(with_spread(observed, LATENCY, contender, metric) for metric in metrics)]
        for contender in observed.peers()
        if (LATENCY, contender) in observed.rounds
    ]
    if not rows:
        return ""
    headings = ("consumer", "p50 ms", "p99 ms", "longest ms", "processors busy", "peak memory MB")
    title = f"Latency at 1,000 messages/s of {USUAL_BYTES} B, from before `produce()` (confluent-kafka, linger 0)"
    return f"## {title}\n\n{markdown_table(headings, rows)}"


def _shape_text(found: re.Match[str]) -> str:
    partitions = int(found[4])
    return f"{int(found[2]):,} B, {found[3]}, {partitions} partition{'s' if partitions > 1 else ''}"


def _ratio(observed: Observed, scenario: str, compared: Ratio) -> str:
    value = ratio(observed, scenario, compared)
    text = times(value)
    return f"**{text}**" if value is not None and value < compared.aim else text
