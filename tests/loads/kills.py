"""Loads are killed at chosen points or random times, and run again; then the table is compared."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ottla.spark.lake.tasks import Stage
from ottla.testing import ControlledBroker, Record, Topic, produce
from tests.eventually import eventually
from tests.loads.child import DRIVER, EXECUTOR, EXECUTOR_OF_ANOTHER, ancestors, kill
from tests.loads.tables import TableSpec, problems, problems_of_keys
from tests.quick_java import quick_java
from tests.s3_server import BUCKET, S3Server

PARTITIONS: Final = 3
RECORDS_PER_LOAD: Final = 300

# The four points, as a driver and as an executor meets them.  Around the commit no task runs: the workers that
# are killed there as executors are idle, and it is the next commit's tasks that miss them.
POINTS: Final[Mapping[str, Mapping[str, Stage]]] = {
    "before write": {DRIVER: Stage.PLANNED, EXECUTOR: Stage.TASK_BEGAN},
    "after write": {DRIVER: Stage.WRITTEN, EXECUTOR: Stage.TASK_WROTE},
    "before commit": {DRIVER: Stage.COMMITTING, EXECUTOR: Stage.COMMITTING},
    "after commit": {DRIVER: Stage.COMMITTED, EXECUTOR: Stage.COMMITTED},
}
# Of an upsert, which applies changes between the first two and the last two.
UPSERT_POINTS: Final[Mapping[str, Mapping[str, Stage]]] = {
    "before write": POINTS["before write"],
    "before applying": {DRIVER: Stage.APPLYING, EXECUTOR: Stage.APPLY_BEGAN},
    "after applying": {DRIVER: Stage.WRITTEN, EXECUTOR: Stage.APPLY_WROTE},
    "before commit": POINTS["before commit"],
    "after commit": POINTS["after commit"],
}
KEYS: Final = 70
TABLES: Final = (
    "delta-local",
    "delta-s3",
    "iceberg-local",
    "iceberg-s3",
    "delta-local-upserts",
    "iceberg-local-upserts",
)


@dataclass(slots=True)
class Outcome:
    """`kills` by victim and point; `problems` are empty where the table is what its log gives."""

    table: str
    kills: Counter[str] = field(default_factory=Counter)
    records_count: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        verdict = "; ".join(self.problems) or "the table is what its log gives"
        return (
            f"{self.table}: {self.kills.total()} kills in {self.took_s:.0f} s ({kills}), "
            f"{self.records_count} records: {verdict}"
        )


class Driver:
    """The process that loads.  It starts at once; the first command waits until it is ready."""

    def __init__(self, folder: Path) -> None:
        self._errors = (folder / f"driver-{uuid.uuid4().hex[:8]}.err").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.loads.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **quick_java()},
        )
        self._is_ready = False

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._is_ready:
            self._process.kill()
        self.close()

    def close(self) -> None:
        """Wait for its end, which follows the last command unless it was killed before."""
        self._process.communicate()
        self._errors.close()

    @property
    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def ask(self, *loads: Mapping[str, object]) -> None:
        """Start these loads at once."""
        if not self._is_ready:
            assert self._line() == {"ready": True}, self.said
            self._is_ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(loads) + "\n")
        self._process.stdin.flush()

    def answers(self) -> list[dict[str, Any]] | None:
        """Of each load; None when it was killed."""
        line = self._line()
        return None if line is None else line["loads"]

    def _line(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self) -> None:
        self._process.kill()

    def workers(self) -> list[int]:
        """The processes that run tasks: children of Spark's Python daemon."""
        daemons = {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_daemon(path)}
        mine = {pid for pid in daemons if self._process.pid in ancestors(pid)}
        return [pid for pid in mine if next(ancestors(pid), 0) in mine]


class Site:
    """A topic that grows, and a table of it."""

    points = POINTS

    def __init__(self, folder: Path, topic: Topic, table: TableSpec) -> None:
        self.folder, self.topic, self.table = folder, topic, table
        self.values: Counter[bytes] = Counter()
        self._ends: Counter[int] = Counter()

    def produce(self, count: int = RECORDS_PER_LOAD) -> None:
        first = self.values.total()
        values = [b"%d" % number for number in range(first, first + count)]
        produce(self.topic, [Record(value, partition=int(value) % PARTITIONS) for value in values])
        self.values.update(values)
        self._ends.update(int(value) % PARTITIONS for value in values)

    def command(self, **more: object) -> dict[str, object]:
        """For a driver: a load of it, with `kill`, `hold` or `for_s`."""
        place = {"folder": str(self.folder), "bootstrap": self.topic.bootstrap, "topic": str(self.topic)}
        return {**place, "table": asdict(self.table), **more}

    def killed(self, mark: str) -> int:
        """The number of processes that the load with this mark killed."""
        made = self.folder / mark
        return int(made.read_text() or 0) if made.exists() else 0

    def problems(self) -> list[str]:
        return problems(self.table.rows(), self._ends, self.values)

    def compare(self, outcome: Outcome) -> None:
        outcome.records_count = self.values.total()
        outcome.problems += self.problems()


class UpsertSite(Site):
    """A topic of changes, of which every seventh deletes a row, and a table with a row for each key."""

    points = UPSERT_POINTS

    def __init__(self, folder: Path, topic: Topic, table: TableSpec) -> None:
        super().__init__(folder, topic, table)
        self._chance = random.Random(23)
        self._rows: dict[bytes, bytes] = {}

    def produce(self, count: int = RECORDS_PER_LOAD) -> None:
        first = self.values.total()
        records = []
        for number in range(first, first + count):
            key = self._chance.randrange(KEYS)
            value = None if number % 7 == 0 else b"%d" % number
            records.append(Record(value, key=b"%d" % key, partition=key % PARTITIONS))
            self.values[b"%d" % number] += 1
            if value is None:
                self._rows.pop(b"%d" % key, None)
            else:
                self._rows[b"%d" % key] = value
        produce(self.topic, records)

    def problems(self) -> list[str]:
        return problems_of_keys(self.table.rows(), self._rows)


@contextmanager
def sites(*tables: str) -> Iterator[list[Site]]:
    with (
        tempfile.TemporaryDirectory(prefix="ottla-loads-") as name,
        ControlledBroker() as broker,
        broker.namespace("loads") as namespace,
        ExitStack() as stack,
    ):
        s3: S3Server | None = None
        found = []
        for table in tables:
            folder = Path(name) / table
            folder.mkdir()
            catalog = str(folder / "catalog.db") if table.startswith("iceberg-") else ""
            is_upserted = table.endswith("-upserts")
            spec = TableSpec(table, str(folder / "table"), {}, catalog, is_upserted)
            if table.endswith("-s3"):
                s3 = s3 or stack.enter_context(S3Server())
                spec = TableSpec(table, f"s3://{BUCKET}/{table}", s3.storage, catalog)
            topic = namespace.topic(table, partitions=PARTITIONS)
            found.append(UpsertSite(folder, topic, spec) if is_upserted else Site(folder, topic, spec))
        yield found


def run_points(table: str, times: int) -> Outcome:
    """Every victim at every point, `times` times; the next process loads the rest after a kill."""
    outcome, began_s = Outcome(table), time.monotonic()
    with sites(table) as (here,), ExitStack() as stack:
        driver, next_one = (stack.enter_context(Driver(here.folder)) for _ in range(2))
        for point in here.points:
            for _ in range(times):
                kill_workers(driver, here, point)
                outcome.kills[f"{EXECUTOR} {point}"] += 1
        for point in here.points:
            for _ in range(times):
                kill_driver(driver, [here], point)
                outcome.kills[f"{DRIVER} {point}"] += 1
                driver, next_one = next_one, stack.enter_context(Driver(here.folder))
        here.produce()
        load(driver, here)
        here.compare(outcome)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def load(driver: Driver, *places: Site) -> None:
    """Load all records of their topics."""
    driver.ask(*(here.command() for here in places))
    assert driver.answers() is not None, driver.said


def kill_workers(driver: Driver, here: Site, point: str) -> None:
    """Kill it while it loads new records; the load continues to its end."""
    mark = f"{EXECUTOR} {point} {uuid.uuid4().hex[:8]}"
    here.produce()
    driver.ask(here.command(kill={"mark": mark, "who": EXECUTOR, "stage": here.points[point][EXECUTOR]}))
    answers = driver.answers()
    assert here.killed(mark) > 0, f"no process was killed {mark}: {answers}\n{driver.said}"
    assert answers is not None, f"{mark}: {driver.said}"


def kill_driver(driver: Driver, places: Sequence[Site], point: str) -> None:
    """While it loads new records of all of them at once, each of which is at this point."""
    mark = f"{DRIVER} {point} {uuid.uuid4().hex[:8]}"
    marks = [str(here.folder / mark) for here in places]
    for here in places:
        here.produce()
    kill = {"mark": mark, "who": DRIVER, "stage": places[0].points[point][DRIVER], "together": marks}
    driver.ask(*(here.command(kill=kill) for here in places))
    answers = driver.answers()
    assert answers is None, f"{mark}: {answers}\n{driver.said}"
    for here in places:
        assert here.killed(mark) > 0, f"{here.table.name} was not {point}\n{driver.said}"


def kill_worker_of_second_load(first: Driver, second: Driver, here: Site, point: str) -> str | None:
    """Kill a worker of a load that started before another one of the same records reaches `point`; then both continue.

    Returns the error that refused the second one, None where it was not refused.
    """
    mark = f"{EXECUTOR_OF_ANOTHER} {point} {uuid.uuid4().hex[:8]}"
    here.produce()
    second.ask(here.command(hold=f"hold {mark}"))
    first.ask(here.command(kill={"mark": mark, "who": EXECUTOR_OF_ANOTHER, "stage": here.points[point][EXECUTOR]}))
    answers = first.answers(), second.answers()
    assert here.killed(mark) > 0, f"no process was killed {mark}: {answers}\n{first.said}\n{second.said}"
    assert answers[0] is not None, f"{mark}: {first.said}"
    assert answers[1] is not None, f"{mark}: {second.said}"
    refused: str | None = answers[1][0].get("refused")
    return refused


def run_random(table: str, kills: int, seed: int) -> Outcome:
    """Kills at random times, of workers and of drivers, while records keep coming and loads follow each other."""
    outcome, began_s, chance = Outcome(table), time.monotonic(), random.Random(seed)
    with sites(table) as (here,), ExitStack() as stack:
        driver = stack.enter_context(Driver(here.folder))
        while outcome.kills.total() < kills:
            next_one = stack.enter_context(Driver(here.folder))
            with _growing(here):
                driver.ask(here.command(for_s=3600))
                for _ in range(min(2, kills - outcome.kills.total() - 1)):
                    _kill_a_worker(driver, chance, outcome)
                time.sleep(chance.uniform(0.0, 1.5))
                driver.kill()
                outcome.kills["driver"] += 1
                assert driver.answers() is None, "the driver was not killed"
            driver = next_one
        load(driver, here)
        here.compare(outcome)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def _kill_a_worker(driver: Driver, chance: random.Random, outcome: Outcome) -> None:
    time.sleep(chance.uniform(0.0, 1.5))
    kill(chance.choice(sorted(eventually(driver.workers))))
    outcome.kills["executor"] += 1


@contextmanager
def _growing(here: Site) -> Iterator[None]:
    """Records come until the end of the block."""
    ended = threading.Event()

    def grow() -> None:
        while not ended.wait(0.05):
            here.produce(50)

    thread = threading.Thread(target=grow, name="producer")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _is_daemon(process: Path) -> bool:
    try:
        said = (process / "cmdline").read_bytes()
    except OSError:
        return False
    # The module of a plain session, or that of `ottla.spark.session`.
    return b"pyspark.daemon" in said or b"ottla.spark.worker_daemon" in said
