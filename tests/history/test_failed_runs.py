"""A failed run keeps its directory, and its message has the last output of its processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.errors import KafkaConnectionError, UnsupportedVersionError

from ottla.testing.broker import BrokerDidNotStart
from tests.history.clients import RANGE, ClientProcess
from tests.history.consuming_kafka_python import KafkaPythonClient, poll
from tests.history.member import Member
from tests.history.operations import Poll, read_lines
from tests.history.recorder import Recorder
from tests.history.report import Report
from tests.history.workload import BROKER_LOG, Faults, Result, run_faults


def test_run_without_a_broker_keeps_its_directory_and_names_it() -> None:
    with pytest.raises(BrokerDidNotStart) as failed:
        run_faults(RANGE, [], seed=1, mutation="no-such-mutation")
    kept = re.search(r"kept in (\S+)", "".join(failed.value.__notes__))
    assert kept is not None
    assert (Path(kept[1]) / BROKER_LOG).exists()
    shutil.rmtree(kept[1])


def test_client_that_ended_unexpectedly_is_described_with_its_last_lines(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as opened:
        command = [sys.executable, "-c", "print('reading'); raise SystemExit('no coordinator')"]
        process = subprocess.Popen(command, stdout=opened, stderr=subprocess.STDOUT)
    client = ClientProcess("member0", process, tmp_path / "history", output)
    described = client.describe_end(process.wait())
    assert described.splitlines()[0] == "member0 ended with status 1; its last lines:"
    assert sorted(described.splitlines()[1:]) == ["  no coordinator", "  reading"]
    client.wait_until_started()


def test_result_of_a_failed_run_shows_the_directory_and_the_brokers_last_lines(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    result = Result(Report(), Faults(), ["member0 ended with status 1"], tmp_path, lines)
    assert not result.is_clean
    assert "line 99" in str(result)
    assert "line 1\n" not in str(result)
    assert str(result).endswith(f"kept in {tmp_path}")


class Record(NamedTuple):
    offset: int
    value: bytes


class Partition(NamedTuple):
    partition: int


class ConsumerOfALostBroker:
    """Raises an error of kafka-python; after that it reads one record."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    def poll(self, timeout_ms: int, max_records: int) -> dict[Partition, list[Record]]:
        if self._failures:
            raise self._failures.pop(0)
        return {Partition(0): [Record(7, b"p0:1")]}

    def highwater(self, partition: Partition) -> None:
        return None


def test_member_continues_when_its_library_raises_a_retriable_error(tmp_path: Path) -> None:
    consumer = ConsumerOfALostBroker(KafkaConnectionError("111 ECONNREFUSED"))
    with Recorder(tmp_path / "history") as recorder:
        member = Member("member0", KafkaPythonClient(consumer, "topic"), recorder)
        poll(consumer, member)
        poll(consumer, member)
    (read,) = read_lines([tmp_path / "history"])
    assert isinstance(read, Poll)
    assert read.records == ((7, "p0:1"),)


def test_member_ends_when_its_library_raises_a_fatal_error(tmp_path: Path) -> None:
    consumer = ConsumerOfALostBroker(UnsupportedVersionError())
    with Recorder(tmp_path / "history") as recorder, pytest.raises(UnsupportedVersionError):
        poll(consumer, Member("member0", KafkaPythonClient(consumer, "topic"), recorder))
