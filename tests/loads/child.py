"""A process that loads: reads commands from standard input, answers each with a line, and is killed where it is told.

Spark's executor is in this process's Java; what runs the tasks, and is killed as executor, are its Python workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import ottla.spark
from ottla.spark.lake import Loader, plans
from ottla.spark.lake.tasks import Stage
from tests.loads.tables import TableSpec

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
IN_TASKS: Final = frozenset({Stage.TASK_BEGAN, Stage.TASK_WROTE})
# Small, so that a load of some hundred records has several commits of several tasks.
ROWS_PER_COMMIT: Final = 200
ROWS_PER_TASK: Final = 40


@dataclass(frozen=True, slots=True)
class Killer:
    """Told by a load where it is.  Kills once: who does it makes `mark`, which has the number of victims."""

    folder: Path
    mark: str = ""
    who: str = ""
    stage: str = ""

    def __call__(self, stage: Stage) -> None:
        if stage in IN_TASKS:
            (self.folder / f"worker-{os.getpid()}").touch()
        if stage != self.stage or not self._is_first():
            return
        mark = self.folder / self.mark
        if self.who == DRIVER or stage in IN_TASKS:
            mark.write_text("1")
            os.kill(os.getpid(), signal.SIGKILL)
        victims = 0
        for path in self.folder.glob("worker-*"):
            path.unlink()
            pid = int(path.name.removeprefix("worker-"))
            # It may have died long ago, and its number may be another process's by now.
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


def ancestors(pid: int) -> Iterator[int]:
    """The process's parent, its parent's, and so on; nothing of one that has ended."""
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


def main(given: Mapping[str, Any]) -> None:
    folder, table = Path(given["folder"]), TableSpec(**given["table"])
    spark = ottla.spark.session("loads under kills", master="local[2,4]")
    answer({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        killer = Killer(folder, *command.get("kill", ()))
        loader = Loader(
            spark,
            given["bootstrap"],
            given["topic"],
            table.target(),
            rows_per_commit=ROWS_PER_COMMIT,
            at=killer,
        )
        end_s = time.monotonic() + command.get("for_s", 0)
        rows_count = loader.load().rows_count
        while time.monotonic() < end_s:
            rows_count += loader.load().rows_count
        answer({"rows": rows_count})
    spark.stop()


def answer(facts: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with patch.object(plans, "ROWS_PER_TASK_MIN", ROWS_PER_TASK):
        main(json.loads(sys.argv[1]))
