"""Tasks' workers and drivers of a stream that is exactly once are killed at every point of a batch, or stand still."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration.spark.committed_values import committed_values
from tests.integration.spark.dying_delivery import LATE, ROWS_OF_BATCH
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow]

ENDS_WITHIN_S = 400
# At each of these the driver dies; then a task's worker, which Spark starts again, and the query ends.
DEATHS = (("taken over", 0), ("sent", 1), ("committed", 2))
LAST = ("task", 3)
RECORDS = [b"%d" % number for number in range(5 * ROWS_OF_BATCH)]


def run(peer: Peer, source: str, target: str, directory: Path, *where: str) -> int:
    """Its status; where it dies, the whole group of processes does."""
    program = [sys.executable, "-m", "tests.integration.spark.dying_delivery"]
    with (directory / "output").open("ab") as output:
        done = subprocess.run(
            [*program, peer.bootstrap, source, target, str(directory), *where],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    return done.returncode


def test_each_record_is_written_once_when_workers_and_drivers_die_at_every_point(
    peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = f"target-{uuid.uuid4().hex[:8]}"
    peer.create_topic(target, 1)
    peer.produce(topic, [Message(None, value, partition=0) for value in RECORDS])
    statuses = [run(peer, topic, target, tmp_path, name, str(batch_id)) for name, batch_id in (*DEATHS, LAST)]
    assert statuses == [*(-signal.SIGKILL for _ in DEATHS), 0], (tmp_path / "output").read_text()
    assert (tmp_path / "died").exists()
    assert committed_values(peer.bootstrap, target) == RECORDS


def test_a_driver_that_comes_after_the_time_out_of_its_transaction_stops_and_the_next_one_writes_the_batch_once(
    peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = f"target-{uuid.uuid4().hex[:8]}"
    peer.create_topic(target, 1)
    peer.produce(topic, [Message(None, value, partition=0) for value in RECORDS])
    assert run(peer, topic, target, tmp_path, LATE, "1") == 1
    assert (
        "after the transaction_timeout_ms of a transaction its coordinator aborts it"
        in (tmp_path / "output").read_text()
    )
    assert committed_values(peer.bootstrap, target) == RECORDS[:ROWS_OF_BATCH]
    assert run(peer, topic, target, tmp_path) == 0
    assert committed_values(peer.bootstrap, target) == RECORDS
