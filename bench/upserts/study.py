"""./dev bench upserts: changes of a million keys into lake tables, beside Spark's own MERGE, and through kills."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.table import StaticTable
from tests.loads.child import DRIVER, EXECUTOR
from tests.loads.kills import UPSERT_POINTS
from tests.loads.tables import TableSpec, iceberg_batches
from tests.peers.process_usage import cpu_seconds, rss_bytes
from tests.quick_java import quick_java

from bench.client.contenders.names import OTTLA
from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import LoadFailed
from bench.scenarios.topics import create_topic, settle_disk
from bench.spark.child import Child
from bench.spark.memory import MemoryWatch
from bench.spark.processes import SparkProcesses
from bench.study import ROUND, Observed, Study, StudyOptions, markdown_table, number, say, with_spread
from bench.upserts.changes import PARTITIONS, Changes, Folded, fill_topic, folded, problems
from bench.upserts.merge_spark import SPARK, merge_jars, merge_python
from bench.wire import NO_SETTINGS

MERGE: Final = "merge"
KILLS: Final = "kills"
SNAPSHOT: Final = "snapshot"
PARTS: Final = (MERGE, KILLS, SNAPSHOT)
FORMATS: Final = ("delta", "iceberg")
APPEND: Final = f"{OTTLA}-append"
PEERS: Final = (*(f"{who}-{name}" for who in (OTTLA, MERGE) for name in FORMATS), APPEND)

START_TIMEOUT_S: Final = 300
LOAD_TIMEOUT_S: Final = 3600
SECONDS: Final = "seconds"
CPU_S: Final = "cpu_s"
PEAK_MB: Final = "all_peak_mb"
COMMITS: Final = "commits"
FILES: Final = "table_files"
SIZE_MB: Final = "table_mb"
RECORDS: Final = "records"
KILLED: Final = "kills"
LAST_POINT: Final = tuple(UPSERT_POINTS)[-1]
# Of a load whose worker is killed: the commit that misses it, and one after it.
COMMITS_PER_KILL: Final = 2
# Those, one of a driver that was killed after it, and three at the end.
COMMITS_WITH_KILLS: Final = COMMITS_PER_KILL * len(UPSERT_POINTS) + 4


@dataclass(frozen=True, slots=True)
class Sizes:
    changes: Changes
    snapshot: Changes
    rows_per_commit: int

    def scaled(self, share: float) -> Sizes:
        return Sizes(self.changes.scaled(share), self.snapshot.scaled(share), round(self.rows_per_commit * share))


FULL: Final = Sizes(Changes(10_000_000, 1_000_000), Changes(2_000_000, 2_000_000, is_snapshot=True), 1_000_000)
QUICK: Final = Sizes(Changes(200_000, 20_000), Changes(200_000, 200_000, is_snapshot=True), 50_000)


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic of changes, and the table that plain Python computes of them."""

    name: str
    expected: Folded

    @property
    def records_count(self) -> int:
        return self.expected.records_count


class UpsertsRun:
    """One broker for all; a new table for each measurement."""

    def __init__(self, options: StudyOptions, observed: Observed, peer: OttlaPeer) -> None:
        self._options, self._observed, self._peer = options, observed, peer
        self._bootstrap = f"127.0.0.1:{peer.port}"
        self._sizes = QUICK if options.is_quick else FULL.scaled(options.scale)

    def run(self) -> None:
        if self._options.has_part(MERGE) or self._options.has_part(KILLS):
            topic = self._filled("changes", self._sizes.changes)
            if self._options.has_part(KILLS):
                for name in self._chosen(OTTLA):
                    with self._observed.may_fail(f"{KILLS}, {name}"):
                        self._through_kills(topic, name)
            if self._options.has_part(MERGE):
                self._rounds(MERGE, topic, [*self._chosen(OTTLA), *self._chosen(MERGE)])
        if self._options.has_part(SNAPSHOT):
            topic = self._filled("snapshot", self._sizes.snapshot)
            others = [APPEND] if self._options.has_peer(APPEND) else []
            self._rounds(SNAPSHOT, topic, [*others, *self._chosen(OTTLA)])

    def _chosen(self, who: str) -> list[str]:
        return [f"{who}-{name}" for name in FORMATS if self._options.has_peer(f"{who}-{name}")]

    def _filled(self, name: str, changes: Changes) -> Filled:
        say(f"filling {name} with {changes.count:,} changes of {changes.keys:,} keys")
        create_topic(self._peer, name, PARTITIONS)
        fill_topic(self._bootstrap, name, changes)
        expected = folded(changes)
        say(f"plain Python computes {expected.rows_count:,} rows")
        settle_disk()
        return Filled(name, expected)

    def _rounds(self, scenario: str, topic: Filled, peers: list[str]) -> None:
        for index in range(self._options.rounds):
            for name in peers if index % 2 == 0 else peers[::-1]:
                with self._observed.may_fail(f"{scenario}, {name}"):
                    measure = self._merged if name.startswith(MERGE) else self._loaded
                    self._observed.add(scenario, name, {ROUND: index, **measure(topic, name)})

    def _loaded(self, topic: Filled, name: str) -> Mapping[str, float]:
        with self._table(name) as (folder, table):
            with self._driver(folder, topic, table) as driver:
                jvm_pid = _jvm_pid(driver)
                settle_disk()
                done, figures = self._measured(
                    driver, driver.pid, jvm_pid, {"rows_per_commit": self._sizes.rows_per_commit}
                )
            if done["left"] or done["rows"] != topic.records_count:
                raise LoadFailed(f"{done['rows']:,} of {topic.records_count:,} records were loaded")
            if table.is_upserted:
                _check(table.batches(), topic)
            elif (count := sum(batch.num_rows for batch in table.batches())) != topic.records_count:
                raise LoadFailed(f"{count:,} rows, {topic.records_count:,} are right")
            return {**figures, COMMITS: done["commits"], RECORDS: done["rows"], **_sizes_of(folder)}

    def _merged(self, topic: Filled, name: str) -> Mapping[str, float]:
        form = name.removeprefix(f"{MERGE}-")
        jars, python = merge_jars(), merge_python()
        with self._table(name) as (folder, _):
            place = folder / "table"
            words = {
                "role": name,
                "format": form,
                "jars": [str(jar) for jar in jars],
                "table": str(place),
                "checkpoint": str(folder / "checkpoint"),
                "bootstrap": self._bootstrap,
                "topic": topic.name,
                "rows_per_commit": self._sizes.rows_per_commit,
            }
            with Child("bench.upserts.merge_process", words, folder / "log", str(python)) as driver:
                started = driver.answer(START_TIMEOUT_S)
                settle_disk()
                done, figures = self._measured(driver, int(started["pid"]), int(started["jvm_pid"]), {"go": True})
            _check(TableSpec(name, str(place), {}).batches() if form == "delta" else _iceberg_batches(place), topic)
            # Spark counts a batch as often as it reads it: Iceberg's MERGE does so twice, to find files and to write
            # them.  Kept in memory between the two, with `persist`, it took more of the processor.
            return {**figures, COMMITS: done["commits"], RECORDS: topic.records_count, **_sizes_of(folder)}

    def _measured(
        self, driver: Child, pid: int, jvm_pid: int, command: Mapping[str, object]
    ) -> tuple[Mapping[str, float], dict[str, float]]:
        """Time and memory of the driver, its JVM and its workers; seconds of the processor of these and the broker."""

        def sizes() -> Mapping[str, int]:
            jvm, workers = processes.rss()
            found = {"driver": rss_bytes(pid), "jvm": jvm, "workers": workers}
            return {**found, "all": sum(found.values())}

        with SparkProcesses(jvm_pid) as processes, MemoryWatch(sizes) as watch:
            before = processes.usage(), cpu_seconds(pid), self._peer.cpu_seconds()
            driver.tell(command)
            done = driver.answer(LOAD_TIMEOUT_S)
            after = processes.usage(), cpu_seconds(pid), self._peer.cpu_seconds()
            spark_s = after[0].jvm_s + after[0].python_s - before[0].jvm_s - before[0].python_s
        peaks = {name: value for name, value in watch.figures().items() if name.endswith("_peak_mb")}
        return done, {
            SECONDS: done["seconds"],
            CPU_S: spark_s + after[1] - before[1],
            "broker_cpu_s": after[2] - before[2],
            **peaks,
        }

    def _through_kills(self, topic: Filled, name: str) -> None:
        """Each victim once at each point, while the topic is loaded from its start to its end."""
        rows_per_commit = -(-topic.records_count // COMMITS_WITH_KILLS)
        killing = {"rows_per_commit": rows_per_commit, "commits": COMMITS_PER_KILL, "is_first_whole": True}
        began_s, peak_mb = time.monotonic(), 0.0
        with self._table(name) as (folder, table), ExitStack() as stack:

            def start() -> Child:
                return stack.enter_context(self._driver(folder, topic, table, quick_java()))

            # The next process starts while the one before works: what is killed meanwhile is not that.
            driver, next_one = start(), start()
            jvm_pid = _jvm_pid(driver)
            for point in UPSERT_POINTS:
                command = {**killing, "kill": _kill(EXECUTOR, point)}
                _, figures = self._measured(driver, driver.pid, jvm_pid, command)
                peak_mb = max(peak_mb, figures[PEAK_MB])
                _check_killed(folder, EXECUTOR, point)
            for point in UPSERT_POINTS:
                driver.tell({**killing, "kill": _kill(DRIVER, point)})
                driver.wait(LOAD_TIMEOUT_S)
                _check_killed(folder, DRIVER, point)
                driver = next_one
                if point != LAST_POINT:
                    next_one = start()
                jvm_pid = _jvm_pid(driver)
            done, figures = self._measured(driver, driver.pid, jvm_pid, {**killing, "commits": 0})
            if done["left"] or not done["rows"]:
                raise LoadFailed(f"{done['rows']:,} records were loaded after the last kill, {done['left']:,} are left")
            _check(table.batches(), topic)
            self._observed.add(
                KILLS,
                name,
                {
                    ROUND: 0,
                    SECONDS: time.monotonic() - began_s,
                    KILLED: 2 * len(UPSERT_POINTS),
                    RECORDS: topic.records_count,
                    PEAK_MB: max(peak_mb, figures[PEAK_MB]),
                    **_sizes_of(folder),
                },
            )

    @contextmanager
    def _table(self, name: str) -> Iterator[tuple[Path, TableSpec]]:
        folder = self._options.work_dir / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        catalog = str(folder / "catalog.db") if name.endswith("iceberg") else ""
        yield folder, TableSpec(name, str(folder / "table"), {}, catalog, name != APPEND)
        shutil.rmtree(folder)

    def _driver(
        self, folder: Path, topic: Filled, table: TableSpec, environment: Mapping[str, str] = NO_SETTINGS
    ) -> Child:
        words = {
            "role": table.name,
            "folder": str(folder),
            "bootstrap": self._bootstrap,
            "topic": topic.name,
            "table": asdict(table),
        }
        return Child("bench.upserts.load_process", words, folder / "log", environment=environment)


def _jvm_pid(driver: Child) -> int:
    """Waits until it is ready."""
    return int(driver.answer(START_TIMEOUT_S)["jvm_pid"])


def _kill(victim: str, point: str) -> Mapping[str, str]:
    return {"mark": f"{victim} {point}", "who": victim, "stage": UPSERT_POINTS[point][victim]}


def _check_killed(folder: Path, victim: str, point: str) -> None:
    mark = folder / f"{victim} {point}"
    if not mark.exists() or not int(mark.read_text() or 0):
        raise LoadFailed(f"no {victim} was killed {point}")
    say(f"{victim} killed {point}")


def _check(batches: Iterable[pa.RecordBatch], topic: Filled) -> None:
    """Raises LoadFailed where the table is not the one that plain Python computes."""
    wrong = problems(batches, topic.expected)
    if wrong:
        raise LoadFailed(f"the table is wrong: {'; '.join(wrong)}")
    say(f"each of {topic.expected.rows_count:,} rows is as plain Python computes it")


def _iceberg_batches(warehouse: Path) -> Iterator[pa.RecordBatch]:
    """Of the table of a file-system catalog, by its newest metadata."""
    metadata = warehouse / "bench" / "changes" / "metadata"
    version = (metadata / "version-hint.text").read_text().strip()
    return iceberg_batches(StaticTable.from_metadata(str(metadata / f"v{version}.metadata.json")))


def _sizes_of(folder: Path) -> Mapping[str, float]:
    """All that was written and is still there: no replaced file is removed before a vacuum."""
    files = [path.stat().st_size for path in (folder / "table").rglob("*.parquet")]
    return {FILES: len(files), SIZE_MB: sum(files) / 1e6}


def upserts_table(observed: Observed) -> str:
    rows = []
    for scenario in PARTS:
        for name in PEERS:
            if (scenario, name) not in observed.rounds:
                continue
            records = number(observed.median(scenario, name, RECORDS))
            cells = [with_spread(observed, scenario, name, metric) for metric in (SECONDS, CPU_S, PEAK_MB)]
            counts = [number(observed.median(scenario, name, each)) for each in (COMMITS, KILLED, FILES, SIZE_MB)]
            rows.append([scenario, name, records, *cells, *counts])
    headings = ("", "table", "records", "s", "processor s", "peak MB", "commits", "kills", "files", "MB written")
    note = (
        f"Debezium's events in JSON with tombstones, {PARTITIONS} partitions, one broker (policy `os`). `{MERGE}` of "
        f"`foreachBatch` by Spark {SPARK} (Iceberg has no runtime jar for Spark 4.2 and 4.3 yet) with the official "
        "Kafka connector, MERGE by the sequence, as many records in a batch as in a commit; Ottla with 16 buckets, "
        "both on `local[2]`. Every table is compared with the one that "
        f"plain Python computes. `{KILLS}`: a worker and the driver are killed at {len(UPSERT_POINTS)} points each, "
        "the time has the restarts. Processor: Spark's processes, workers and driver; peak: of all of them together. "
        "Files and MB: all that was written, also what was replaced since."
    )
    return f"{note}\n\n{markdown_table(headings, rows)}"


def run(options: StudyOptions, observed: Observed) -> None:
    with start_ottla("os", options.work_dir) as peer:
        UpsertsRun(options, observed, peer).run()


STUDY: Final = Study(
    name="upserts",
    summary="upserts of changes beside Spark's own MERGE, through kills, and of a snapshot beside an append",
    parts=PARTS,
    peers=PEERS,
    rounds=1,
    run=run,
    table=upserts_table,
    has_scale=True,
)
