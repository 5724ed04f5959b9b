"""The related items, which are killed at a point of their SQLite transaction: MODULE POINT ARGUMENTS."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from typing import Final
from unittest.mock import patch

from examples.related_items.__main__ import program
from examples.related_items.counts import Pair, PairCounts

BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"
POINTS: Final = (BEFORE_COMMIT, AFTER_COMMIT)

_add = PairCounts.add


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_commit(counts: PairCounts, query_id: str, batch_id: int, pairs: Iterable[Pair]) -> bool:
    """At the first batch that has pairs: everything is written when SQLite is about to execute the COMMIT."""
    if pairs := list(pairs):
        counts._database.set_trace_callback(lambda statement: die() if statement == "COMMIT" else None)
    return _add(counts, query_id, batch_id, pairs)


def add_and_die(counts: PairCounts, query_id: str, batch_id: int, pairs: Iterable[Pair]) -> bool:
    """The counts have the first batch with pairs, and Spark has not committed the batch."""
    pairs = list(pairs)
    is_new = _add(counts, query_id, batch_id, pairs)
    if pairs and is_new:
        die()
    return is_new


if __name__ == "__main__":
    point, *arguments = sys.argv[1:]
    with patch.object(PairCounts, "add", {BEFORE_COMMIT: die_at_commit, AFTER_COMMIT: add_and_die}[point]):
        program(arguments)
