"""`ottla topic offsets` and `delete-records`, against brokers in memory."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from ottla.cli.topic import records
from ottla.cli.topic.records import new_starts
from ottla.client.wire.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = {P0: range(5, 20), P1: range(0)}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    fake.add_topic("t", 1, 1)
    for time_ms in (1_000, 2_000):
        fake.partitions[P0].append(build_batch([Record(0, time_ms, None, b"v")]))

    def open_cluster(bootstrap: str, client_id: str) -> Cluster:
        return fake.client()

    monkeypatch.setattr(records, "open_cluster", open_cluster)
    return fake


def run(*arguments: str) -> Result:
    command = {"offsets": records.offsets, "delete-records": records.delete_records}[arguments[0]]
    return CliRunner().invoke(command, list(arguments[1:]))


def test_offsets_are_the_ends_of_each_log_and_the_offset_at_a_time(fake: FakeCluster) -> None:
    shown = run("offsets", "t", "--since", "1970-01-01T00:00:02")
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "START", "END", "RECORDS", "SINCE"],
        ["t", "0", "0", "2", "2", "1"],
        ["t", "1", "0", "0", "0", "-"],
    ]
    (line,) = run("offsets", "t:0", "--json").stdout.splitlines()
    assert json.loads(line) == {
        "topic": "t",
        "partition": 0,
        "start_offset": 0,
        "end_offset": 2,
        "records": 2,
        "problem": None,
    }


def test_deletion_without_execute_only_shows_the_new_starts(fake: FakeCluster) -> None:
    shown = run("delete-records", "t", "--until", "1970-01-01T00:00:02")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "START", "NEW-START", "DELETED"],
        ["t", "0", "0", "1", "1"],
    ]
    assert shown.stderr == "nothing was changed: --execute deletes 1 record\n"


def test_deletion_of_nothing_is_reported(fake: FakeCluster) -> None:
    shown = run("delete-records", "t:1", "--all", "--execute")
    assert (shown.stdout, shown.stderr) == ("", "nothing to delete\n")


def test_logs_start_at_the_offset_at_the_time_or_at_their_end() -> None:
    assert new_starts({P0: range(5, 20)}, 7, None) == {P0: 7}
    assert new_starts(RANGES, None, {P0: 9, P1: -1}) == {P0: 9}
    assert new_starts(RANGES, None, {P0: -1, P1: -1}) == {P0: 20}
    assert new_starts(RANGES, None, None) == {P0: 20}
    assert new_starts({P0: range(5, 20)}, 3, None) == {}


def test_offset_beyond_the_end_is_a_mistake() -> None:
    with pytest.raises(OttlaError, match="t-0: offset 21 is not in the log, which ends at 20"):
        new_starts({P0: range(5, 20)}, 21, None)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--all"], "Name at least one topic"),
        (["t"], "Give one of"),
        (["t", "--all", "--before-offset", "1"], "Give one of"),
        (["t", "--until", "soon"], "a moment like"),
        (["t:x", "--all"], "Name TOPIC or TOPIC:0,1"),
    ],
)
def test_deletion_refuses_flags_that_cannot_be(fake: FakeCluster, arguments: list[str], what: str) -> None:
    done = run("delete-records", *arguments)
    assert done.exit_code == 2
    assert what in done.output
