"""The driver of Ottla's loads, in a process of its own, which is killed at the point that a command names."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from tests.loads.child import Killer
from tests.loads.tables import TableSpec

import ottla.spark
from bench.spark.parent import hear_from_parent, say_to_parent
from bench.spark.processes import jvm_pid
from ottla.spark.lake import Loader, debezium_json, load

ROW = pa.schema([("id", pa.int64()), ("text", pa.string())])
DECODE = debezium_json(ROW, ["id"], {"lsn": pa.int64()})


def main(text: str) -> int:
    words = json.loads(text)
    spark = ottla.spark.session("upserts", master="local[2,4]")
    say_to_parent({"jvm_pid": jvm_pid(spark)})
    while command := hear_from_parent():
        # Otherwise the first commit is small, and a kill would meet no other.
        first = command["rows_per_commit"] if "is_first_whole" in command else load.ROWS_PER_TASK_FIRST
        with patch.object(load, "ROWS_PER_TASK_FIRST", first):
            loader = loader_of(spark, words, command)
            began_s = time.monotonic()
            loaded = loader.load(should_stop=_after(int(command.get("commits", 0))))
        say_to_parent(
            {
                "seconds": time.monotonic() - began_s,
                "rows": loaded.rows_count,
                "commits": loaded.commits_count,
                "files": loaded.files_count,
                "left": loaded.left_count,
            }
        )
    spark.stop()
    return 0


def loader_of(spark: Any, words: Mapping[str, Any], command: Mapping[str, Any]) -> Loader:
    table = TableSpec(**words["table"])
    settings: dict[str, Any] = {"columns": (), "decode": DECODE, "rows_per_commit": command["rows_per_commit"]}
    if table.is_upserted:
        settings |= {"mode": "upsert", "keys": ("id",), "sequence_by": "source_lsn"}
    if "kill" in command:
        settings["at"] = Killer(Path(words["folder"]), **command["kill"])
    return Loader(spark, words["bootstrap"], words["topic"], table.target(), **settings)


def _after(commits: int) -> Callable[[], bool]:
    """Stops a load before the commit after so many; 0: never."""
    called = 0

    def should_stop() -> bool:
        nonlocal called
        called += 1
        return 0 < commits < called

    return should_stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
