"""The driver of a stream with dead letters is killed between the letters and the commit: nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import Replay, Replayed, letter_of
from ottla.testing import Namespace, Record, Topic, consume_all, produce
from ottla.testing.broker import RunningBroker
from tests.integration.spark.dying_letters import ROWS_OF_BATCH

pytestmark = pytest.mark.spark

# Three batches, and each third record is malformed.
RECORDS_COUNT = 3 * ROWS_OF_BATCH
ENDS_WITHIN_S = 400
IS_BAD = [number % 3 == 0 for number in range(RECORDS_COUNT)]
BAD_COUNT = sum(IS_BAD)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with RunningBroker() as broker, Namespace(broker.bootstrap) as names:
        yield names


def run(topic: Topic, directory: Path, *where: str) -> int:
    """Its status; where it dies, the whole group of processes does."""
    program = [sys.executable, "-m", "tests.integration.spark.dying_letters", topic.bootstrap, topic, str(directory)]
    with (directory / "output").open("ab") as output:
        done = subprocess.run(
            [*program, *where],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    return done.returncode


def test_no_record_is_lost_and_each_letter_is_put_back_once_when_the_driver_is_killed_at_two_points(
    namespace: Namespace, tmp_path: Path
) -> None:
    topic = namespace.topic("numbers", partitions=2)
    produce(
        topic,
        [
            Record(b"no %d" % number if is_bad else b"%d" % number, partition=number % 2)
            for number, is_bad in enumerate(IS_BAD)
        ],
    )
    statuses = [run(topic, tmp_path, *where) for where in (("letters", "0"), ("processed", "1"), ())]
    assert statuses == [-signal.SIGKILL, -signal.SIGKILL, 0], (tmp_path / "output").read_text()

    processed = [json.loads(file.read_text()) for file in (tmp_path / "processed").iterdir()]
    assert len(processed) == 3
    # A batch that ran twice has written its file twice.
    assert sorted(number for batch in processed for number in batch) == [
        number for number, is_bad in enumerate(IS_BAD) if not is_bad
    ]
    messages = consume_all(topic)
    bad = {(each.partition, each.offset): each.value for each in messages if each.value and b"no" in each.value}
    assert len(bad) == BAD_COUNT
    letters = [letter_of(each) for each in consume_all(f"{topic}.dead-letter", bootstrap=topic.bootstrap)]
    assert {(each.origin.partition, each.origin.offset): each.value for each in letters} == bad
    table = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert Counter((row["partition"], row["offset"], row["value"]) for row in table) == Counter(
        (*place, value) for place, value in bad.items()
    )
    # Two batches were run twice.
    repeated = len(letters) - BAD_COUNT
    assert repeated > 0

    with Cluster(topic.bootstrap) as cluster:
        assert Replay(cluster, f"{topic}.dead-letter").run() == Replayed(put_back=BAD_COUNT, were_back=repeated)
        assert Replay(cluster, f"{topic}.dead-letter").run() == Replayed(were_back=len(letters))
    values = Counter(message.value for message in consume_all(topic))
    assert values.total() == RECORDS_COUNT + BAD_COUNT
    assert {value for value, count in values.items() if count == 2} == set(bad.values())
