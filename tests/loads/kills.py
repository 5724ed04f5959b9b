"""Loads that are killed, at points that are chosen or at random times, and run again; then the table is compared."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ottla.spark.lake.tasks import Stage
from ottla.testing import ControlledBroker, Record, Topic, produce
from tests.eventually import eventually
from tests.loads.child import DRIVER, EXECUTOR, ancestors, kill
from tests.loads.tables import TableSpec, problems
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
TABLES: Final = ("delta-local", "delta-s3", "iceberg-local", "iceberg-s3")


@dataclass(slots=True)
class Outcome:
    """`kills` by victim and point; `problems` are empty where each offset is in the table once."""

    table: str
    kills: Counter[str] = field(default_factory=Counter)
    records_count: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        verdict = "; ".join(self.problems) or "each offset is in the table once"
        return (
            f"{self.table}: {self.kills.total()} kills in {self.took_s:.0f} s ({kills}), "
            f"{self.records_count} records: {verdict}"
        )


class Driver:
    """The process that loads."""

    def __init__(self, folder: Path, topic: Topic, table: TableSpec) -> None:
        given = {"folder": str(folder), "bootstrap": topic.bootstrap, "topic": str(topic), "table": asdict(table)}
        self._errors = (folder / f"driver-{uuid.uuid4().hex[:8]}.err").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.loads.child", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.answer() == {"ready": True}, self.said

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def close(self) -> None:
        """Waits until it has ended, which it does without another command, unless it was killed before."""
        self._process.communicate()
        self._errors.close()

    @property
    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def ask(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """None when it was killed."""
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
    """A broker, a topic that grows, and a table."""

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

    def driver(self) -> Driver:
        return Driver(self.folder, self.topic, self.table)

    def compare(self, outcome: Outcome) -> None:
        outcome.records_count = self.values.total()
        outcome.problems += problems(self.table.rows(), self._ends, self.values)


@contextmanager
def site(table: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="ottla-loads-") as name, ControlledBroker() as broker:
        folder = Path(name)
        with broker.namespace("loads") as namespace:
            topic = namespace.topic("clicks", partitions=PARTITIONS)
            catalog = str(folder / "catalog.db") if table.startswith("iceberg-") else ""
            if table.endswith("-local"):
                yield Site(folder, topic, TableSpec(table, str(folder / "table"), {}, catalog))
                return
            with S3Server() as s3:
                yield Site(folder, topic, TableSpec(table, f"s3://{BUCKET}/table", s3.storage, catalog))


def run_points(
    table: str, times: int, points: Sequence[str] = tuple(POINTS), victims: Sequence[str] = (EXECUTOR, DRIVER)
) -> Outcome:
    """Every victim at every point, `times` times; what a kill left is loaded by the process that comes next."""
    outcome, began_s = Outcome(table), time.monotonic()
    with site(table) as here:
        driver = here.driver()
        for victim in victims:
            for point in points:
                for repetition in range(times):
                    mark = f"{victim} {point} {repetition}"
                    here.produce()
                    driver.ask(kill=[mark, victim, POINTS[point][victim]])
                    answer = driver.answer()
                    made = here.folder / mark
                    killed = int(made.read_text() or 0) if made.exists() else 0
                    assert killed > 0, f"nobody was killed {mark}: {answer}\n{driver.said}"
                    assert (answer is None) == (victim == DRIVER), f"{mark}: {answer}\n{driver.said}"
                    outcome.kills[f"{victim} {point}"] += 1
                    if answer is None:
                        driver.close()
                        driver = here.driver()
        here.produce()
        with driver:
            driver.ask()
            assert driver.answer() is not None, driver.said
        here.compare(outcome)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def run_random(table: str, kills: int, seed: int) -> Outcome:
    """Kills at random times, of workers and of drivers, while records keep coming and loads follow each other."""
    outcome, began_s, chance = Outcome(table), time.monotonic(), random.Random(seed)
    with site(table) as here:
        while outcome.kills.total() < kills:
            with here.driver() as driver, _growing(here):
                driver.ask(for_s=3600)
                for _ in range(min(2, kills - outcome.kills.total() - 1)):
                    _kill_a_worker(driver, chance, outcome)
                time.sleep(chance.uniform(0.0, 1.5))
                driver.kill()
                outcome.kills["driver"] += 1
                assert driver.answer() is None, "the driver was not killed"
        with here.driver() as driver:
            driver.ask()
            assert driver.answer() is not None, driver.said
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
        return b"pyspark.daemon" in (process / "cmdline").read_bytes()
    except OSError:
        return False
