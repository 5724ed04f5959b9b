"""The driver of a load, in a process of its own as a user's program is: what it needs can then be seen from outside."""

from __future__ import annotations

import json
import sys
import time

import ottla.spark
from bench.spark.parent import hear_from_parent, say_to_parent
from bench.spark.processes import jvm_pid
from ottla.spark.lake import Loader


def main(text: str) -> int:
    words = json.loads(text)
    spark = ottla.spark.session("load", master="local[2]")
    say_to_parent({"jvm_pid": jvm_pid(spark)})
    hear_from_parent()
    began_ns = time.monotonic_ns()
    loaded = Loader(spark, words["bootstrap"], words["topic"], words["target"]).load()
    ended_ns = time.monotonic_ns()
    say_to_parent(
        {
            "began_ns": began_ns,
            "ended_ns": ended_ns,
            "rows": loaded.rows_count,
            "commits": loaded.commits_count,
            "files": loaded.files_count,
            "end_offsets": {str(place.partition): offset for place, offset in loaded.next_offsets.items()},
        }
    )
    hear_from_parent()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
