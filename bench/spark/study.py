"""./dev bench spark: reads, streams, loads and writes of one Spark session, by Ottla's source and the official one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from tests.interop.clients.spark_connector import connector_jars

import ottla.spark
from bench.client.contenders.names import CONFLUENT, PACE
from bench.client.job import PLAIN, Job, run_job
from bench.client.matrix import USUAL_BYTES
from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import LoadFailed
from bench.scenarios.scenario import Figures
from bench.scenarios.topics import count_records
from bench.spark.backlog import run_backlog
from bench.spark.backlog_table import BACKLOG
from bench.spark.busy_host import busy_host
from bench.spark.contenders import CONTENDERS, OTTLA, Contender
from bench.spark.filling import PARTITIONS, fill_topic, value_bytes_in, write_rows
from bench.spark.matrix import (
    BUSY,
    BUSY_SINK,
    BUSY_SUM,
    COUNT,
    FIXED,
    FULL,
    LATENCY,
    LOAD,
    PARQUET,
    QUICK,
    SINK,
    STREAM,
    STREAM_LIMITED,
    SUM,
    TRIGGERS_OF_BACKLOG,
    Shape,
)
from bench.spark.processes import SparkProcesses, jvm_pid
from bench.spark.table import missed_floors, spark_table
from bench.spark.workloads import Workloads, failing_load
from bench.study import ROUND, Observed, Study, StudyOptions, percentile, say
from bench.wire import Wire

READ: Final = "read"
PARTS: Final = (READ, STREAM, LOAD, SINK, LATENCY, BUSY, BACKLOG)
LATENCY_MESSAGES_PER_S: Final = 1000
MISSED: Final = "floor missed: "
# The first micro-batches of a query start its Python workers.
FIRST_BATCHES: Final = 5
WARM: Final = "warm-up"
WARM_UPS: Final = 3
WARM_UP: Final = Shape(FIXED, USUAL_BYTES, PLAIN)
WARM_UP_ROWS: Final = 300_000


class SparkRun:
    """Contenders alternate workload by workload, every second round in the other order."""

    def __init__(
        self,
        options: StudyOptions,
        observed: Observed,
        peer: OttlaPeer,
        spark: SparkSession,
        processes: SparkProcesses,
    ) -> None:
        self._options = options
        self._observed = observed
        self._peer = peer
        self._bootstrap = f"127.0.0.1:{peer.port}"
        self._sizes = QUICK if options.is_quick else FULL
        self._work = Workloads(spark, self._bootstrap, options.work_dir / "spark")
        self._processes = processes
        self._filled: set[str] = set()

    def run(self) -> None:
        self._warm_up()
        for round_index in range(self._options.rounds):
            say(f"round {round_index + 1} of {self._options.rounds}")
            for shape in self._sizes.read if self._options.has_part(READ) else ():
                rows = self._sizes.rows(shape)
                for workload in (COUNT, SUM, PARQUET) if shape in self._sizes.to_parquet else (COUNT, SUM):
                    self._all(f"{workload}-{shape.topic}", round_index, self._reading(workload, shape, rows))
            for shape in self._sizes.streamed if self._options.has_part(STREAM) else ():
                rows = self._sizes.rows(shape)
                for workload in (STREAM, STREAM_LIMITED):
                    self._all(f"{workload}-{shape.topic}", round_index, self._reading(workload, shape, rows))
            for shape in self._sizes.loaded if self._options.has_part(LOAD) else ():
                rows = self._sizes.rows(shape)
                self._all(f"{LOAD}-{shape.topic}", round_index, self._reading(LOAD, shape, rows))
            for shape in self._sizes.sunk if self._options.has_part(SINK) else ():
                rows = self._sizes.sunk_rows(shape)
                self._all(f"{SINK}-{shape.topic}", round_index, self._sinking(shape, rows, round_index))
            if self._options.has_part(LATENCY):
                self._all(LATENCY, round_index, partial(self._latency, round_index))
            if self._options.has_part(BUSY):
                self._run_busy(round_index)

    def _run_busy(self, round_index: int) -> None:
        """Beside processes that never sleep; what is read and written is there before they start."""
        works: list[tuple[str, Callable[[Contender], Figures]]] = []
        for shape in self._sizes.busy:
            rows = self._sizes.busy_rows(shape)
            if self._options.has_scenario(f"{BUSY_SUM}-{shape.topic}"):
                self._fill(f"{BUSY}-{shape.topic}", shape, rows)
                works.append((f"{BUSY_SUM}-{shape.topic}", self._reading(SUM, shape, rows, f"{BUSY}-{shape.topic}")))
            if self._options.has_scenario(f"{BUSY_SINK}-{shape.topic}"):
                self._rows_of(shape, rows)
                works.append((f"{BUSY_SINK}-{shape.topic}", self._sinking(shape, rows, round_index)))
        with busy_host():
            for scenario, work in works:
                self._all(scenario, round_index, work)

    def _warm_up(self) -> None:
        """Each contender's classes are loaded and compiled, and Python's workers run, before anything is measured."""
        work = self._work
        whole = (
            ((READ,), (work.count, work.to_parquet)),
            ((READ, BUSY), (work.sum_of_lengths,)),
            ((STREAM, LATENCY), (work.stream,)),
            ((LOAD,), (work.load,)),
            ((SINK, BUSY), (self._warm_sink,)),
        )
        works = [each for parts, some in whole if any(map(self._options.has_part, parts)) for each in some]
        self._fill(WARM, WARM_UP, WARM_UP_ROWS)
        # In turn, since Spark ends Python workers that have had nothing to do for a minute.
        for contender in self._contenders() * WARM_UPS:
            with self._observed.may_fail(f"{contender.name}, warm-up"), failing_load(WARM):
                for each in works:
                    if not contender.session or each == self._warm_sink:
                        each(contender, WARM)

    def _warm_sink(self, contender: Contender, name: str) -> None:
        rows = self._rows_of(WARM_UP, WARM_UP_ROWS)
        with self._topic(f"sink-{name}"):
            self._work.sink(contender, f"sink-{name}", rows, "none")

    def _contenders(self) -> list[Contender]:
        return [each for name, each in CONTENDERS.items() if self._options.has_peer(name)]

    def _all(self, scenario: str, round_index: int, work: Callable[[Contender], Figures]) -> None:
        if not self._options.has_scenario(scenario):
            return
        contenders = [each for each in self._contenders() if not each.session or SINK in scenario.split("-")]
        if all(self._observed.has(scenario, contender.name, round_index) for contender in contenders):
            return  # a continued run
        for contender in contenders if round_index % 2 == 0 else contenders[::-1]:
            what = f"{contender.name}, {scenario}"
            with self._observed.may_fail(what), failing_load(what):
                self._observed.add(scenario, contender.name, {**work(contender), ROUND: round_index})

    def _reading(
        self, workload: str, shape: Shape, rows: int, topic: str | None = None
    ) -> Callable[[Contender], Figures]:
        """`topic` has so many records of the shape; that of the shape by default."""
        name = topic or shape.topic
        functions: dict[str, Callable[[Contender, str], int]] = {
            COUNT: self._work.count,
            SUM: self._work.sum_of_lengths,
            PARQUET: self._work.to_parquet,
            LOAD: self._work.load,
            STREAM: self._work.stream,
            STREAM_LIMITED: lambda contender, topic: self._work.stream(contender, topic, rows // TRIGGERS_OF_BACKLOG),
        }
        wanted = value_bytes_in(shape, rows) if workload == SUM else rows

        def read(contender: Contender) -> Figures:
            self._fill(name, shape, rows)
            with self._measured(rows) as figures:
                found = functions[workload](contender, name)
            _check(name, wanted, found)
            return figures

        return read

    def _sinking(self, shape: Shape, rows: int, round_index: int) -> Callable[[Contender], Figures]:
        def sink(contender: Contender) -> Figures:
            source = self._rows_of(shape, rows)
            topic = f"sink-{shape.topic}-{contender.name}-{round_index}"
            with self._topic(topic):
                with self._measured(rows) as figures:
                    self._work.sink(contender, topic, source, "none" if shape.codec == PLAIN else shape.codec)
                _check(topic, rows, count_records(self._peer, topic, PARTITIONS))
            return figures

        return sink

    def _rows_of(self, shape: Shape, rows: int) -> Path:
        """Files of them, for a sink; written once."""
        source = self._options.work_dir / f"rows-{shape.topic}-{rows}"
        if not source.exists():
            write_rows(source, shape, rows)
        return source

    def _latency(self, round_index: int, contender: Contender) -> Figures:
        """The time of each micro-batch over a topic that gets 1,000 records a second."""
        topic = f"latency-{contender.name}-{round_index}"
        with self._topic(topic), self._work.endless_stream(contender, topic) as query:
            before = self._processes.usage()
            run_job(self._pacing(topic))
            query.processAllAvailable()
            progress = [each for each in query.recentProgress if each["numInputRows"]]
            rows = sum(each["numInputRows"] for each in progress)
            usage = self._processes.usage()
        _check(topic, round(LATENCY_MESSAGES_PER_S * self._sizes.latency_s), rows)
        times_ms = [float(each["durationMs"]["triggerExecution"]) for each in progress[FIRST_BATCHES:]]
        return {
            "batch_p50_ms": percentile(times_ms, 0.5),
            "batch_p99_ms": percentile(times_ms, 0.99),
            "batches": len(times_ms),
            "cpu_share": (usage.jvm_s + usage.python_s - before.jvm_s - before.python_s) / (usage.at_s - before.at_s),
        }

    def _pacing(self, topic: str) -> Job:
        return Job(
            contender=CONFLUENT,
            module=PACE.module,
            function=PACE.function,
            bootstrap=self._bootstrap,
            topic=topic,
            value_bytes=USUAL_BYTES,
            partitions=PARTITIONS,
            seconds=self._sizes.latency_s,
            messages=LATENCY_MESSAGES_PER_S,
        )

    @contextmanager
    def _measured(self, rows: int) -> Iterator[dict[str, float]]:
        """The figures are there after the block."""
        figures: dict[str, float] = {}
        broker_s = self._peer.cpu_seconds()
        before = self._processes.usage()
        yield figures
        figures |= self._processes.usage().since(before, rows)
        figures["broker_cpu_us_per_row"] = (self._peer.cpu_seconds() - broker_s) / rows * 1e6
        costs = ("jvm_cpu_us_per_row", "python_cpu_us_per_row", "broker_cpu_us_per_row")
        figures["cpu_us_per_row"] = sum(figures[cost] for cost in costs)

    def _fill(self, topic: str, shape: Shape, rows: int) -> None:
        if topic in self._filled:
            return
        self._filled.add(topic)
        say(f"filling {topic} with {rows:,} records")
        with Wire(self._peer.port) as wire:
            wire.create_topic(topic, PARTITIONS)
        fill_topic(self._bootstrap, topic, shape, rows)

    @contextmanager
    def _topic(self, topic: str) -> Iterator[None]:
        with Wire(self._peer.port) as wire:
            wire.create_topic(topic, PARTITIONS)
        try:
            yield
        finally:
            with Wire(self._peer.port) as wire:
                wire.delete_topic(topic)


def _check(topic: str, wanted: int, found: int) -> None:
    if wanted != found:
        raise LoadFailed(f"{topic}: {found} was found where {wanted} is right")


@contextmanager
def open_session(jars: list[Path]) -> Iterator[SparkSession]:
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    spark = ottla.spark.session("bench", master="local[2]", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def run(options: StudyOptions, observed: Observed) -> None:
    if any(options.has_part(part) for part in PARTS if part != BACKLOG):
        _run_comparison(options, observed)
    if options.has_part(BACKLOG) and options.has_scenario(BACKLOG) and options.has_peer(OTTLA):
        run_backlog(options, observed)
    if not options.is_quick:
        earlier = [problem for problem in observed.problems if not problem.startswith(MISSED)]
        observed.problems[:] = [*earlier, *(f"{MISSED}{text}" for text in missed_floors(observed))]


def _run_comparison(options: StudyOptions, observed: Observed) -> None:
    has_others = any(options.has_peer(name) for name in CONTENDERS if name != OTTLA)
    jars = connector_jars() if has_others else []
    observed.about["connector"] = ", ".join(sorted(jar.stem for jar in jars)) or "none"
    with start_ottla("os", options.work_dir) as peer, open_session(jars) as spark:
        observed.about["spark"] = spark.version
        with SparkProcesses(jvm_pid(spark)) as processes:
            SparkRun(options, observed, peer, spark, processes).run()


STUDY: Final = Study(
    name="spark",
    summary="Ottla's Spark source and sink beside the official connector",
    parts=PARTS,
    peers=tuple(CONTENDERS),
    rounds=3,
    run=run,
    table=spark_table,
    has_scenarios=True,
    may_continue=True,
)
