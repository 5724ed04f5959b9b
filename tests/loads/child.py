"""A process that loads: reads commands from standard input, answers each with a line, and is killed at the given point.

Spark's executor is in this process's Java; the tasks run in its Python workers, which are killed in place of executors.
A command's loads run at once, each of a separate table.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import SparkSession

import ottla.spark
from ottla.spark.lake import LakeError, Loader, plans
from ottla.spark.lake.tasks import Stage
from tests.eventually import eventually
from tests.loads.tables import TableSpec

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
# Of a load that another process has started, and that waits in its first task to be killed.
EXECUTOR_OF_ANOTHER: Final = "executor of another load"
HELD: Final = "held"
IN_TASKS: Final = frozenset({Stage.TASK_BEGAN, Stage.TASK_WROTE, Stage.APPLY_BEGAN, Stage.APPLY_WROTE})
# Small, so that a load of some hundred records has several commits of several tasks.
ROWS_PER_COMMIT: Final = 200
ROWS_PER_TASK: Final = 40


@dataclass(frozen=True, slots=True)
class Killer:
    """Called by a load at each point.  Kills once: the killer creates `mark`, which has the number of victims.

    A driver waits until the loads with `together`, the marks of all that it runs at once, have reached the point.
    """

    folder: Path
    mark: str = ""
    who: str = ""
    stage: str = ""
    together: tuple[str, ...] = ()

    def __call__(self, stage: Stage) -> None:
        if stage in IN_TASKS:
            (self.folder / f"worker-{os.getpid()}").touch()
        if stage != self.stage or not self._is_first():
            return
        mark = self.folder / self.mark
        if self.who == DRIVER or stage in IN_TASKS:
            mark.write_text("1")
            # A mark is created first, and gets its number then.
            eventually(lambda: all(Path(other).exists() and Path(other).read_text() for other in self.together))
            os.kill(os.getpid(), signal.SIGKILL)
        if self.who == EXECUTOR_OF_ANOTHER:
            held = self.folder / HELD
            kill(int(eventually(lambda: held.exists() and held.read_text())))
            held.unlink()
            mark.write_text("1")
            return
        victims = 0
        for path in self.folder.glob("worker-*"):
            path.unlink()
            pid = int(path.name.removeprefix("worker-"))
            # It may have died long ago, and another process may have its id by now.
            if os.getpid() in ancestors(pid):
                kill(pid)
                victims += 1
        mark.write_text(str(victims))

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self.folder / self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Holder:
    """Called by a load at each point: its first task writes its id to the file `HELD` and waits to be killed."""

    folder: Path
    mark: str

    def __call__(self, stage: Stage) -> None:
        if stage is not Stage.TASK_BEGAN:
            return
        try:
            os.close(os.open(self.folder / self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        named = self.folder / f"{HELD}-{os.getpid()}"
        named.write_text(str(os.getpid()))
        named.rename(self.folder / HELD)
        while True:
            signal.pause()


def ancestors(pid: int) -> Iterator[int]:
    """The process's parent, its parent's, and so on; empty for one that has ended."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    spark = ottla.spark.session("loads under kills", master="local[2,4]")
    answer({"ready": True})
    for line in sys.stdin:
        loads = json.loads(line)
        with ThreadPoolExecutor(len(loads)) as pool:
            answer({"loads": list(pool.map(lambda given: outcome_of(spark, given), loads))})
    spark.stop()


def outcome_of(spark: SparkSession, given: Mapping[str, Any]) -> dict[str, object]:
    """Of one load, or of those that follow each other for a time."""
    loader = loader_of(spark, given)
    end_s = time.monotonic() + given.get("for_s", 0)
    try:
        rows_count = loader.load().rows_count
        while time.monotonic() < end_s:
            rows_count += loader.load().rows_count
    except LakeError as error:
        if "hold" not in given:
            raise
        return {"refused": str(error)}
    return {"rows": rows_count}


def loader_of(spark: SparkSession, given: Mapping[str, Any]) -> Loader:
    folder, table = Path(given["folder"]), TableSpec(**given["table"])
    at: Callable[[Stage], None] = Killer(folder, **given.get("kill", {}))
    if "hold" in given:
        at = Holder(folder, given["hold"])
    topic, bootstrap = given["topic"], given["bootstrap"]
    return Loader(
        spark,
        bootstrap,
        topic,
        table.target(),
        mode="upsert" if table.is_upserted else "append",
        rows_per_commit=ROWS_PER_COMMIT,
        at=at,
    )


def answer(facts: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with patch.object(plans, "ROWS_PER_TASK_MIN", ROWS_PER_TASK):
        main()
