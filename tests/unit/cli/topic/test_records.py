"""`ottla topic offsets` and `delete-records`, against brokers in memory."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from ottla.cli.topic import records
from ottla.cli.topic.records import new_starts, refusals
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster, Fault

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


def test_data_shows_whether_records_were_deleted(fake: FakeCluster) -> None:
    deletion = ("delete-records", "t:0", "--before-offset", "1", "--json")
    planned, done = json.loads(run(*deletion).stdout), json.loads(run(*deletion, "--execute").stdout)
    assert (planned.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert planned == done == {"topic": "t", "partition": 0, "start_offset": 0, "new_start_offset": 1, "deleted": 1}
    assert fake.partitions[P0].start == 1


def test_deletion_that_one_partition_is_refused_shows_the_others(fake: FakeCluster) -> None:
    for time_ms in (1_000, 2_000):
        fake.partitions[P1].append(build_batch([Record(0, time_ms, None, b"v")]))
    fake.brokers[1].error_of = lambda api, partition: (
        ErrorCode.POLICY_VIOLATION if api is ApiKey.DELETE_RECORDS and partition == P1 else None
    )
    done = run("delete-records", "t", "--all", "--execute")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [["t", "0", "0", "2", "2"]]
    assert isinstance(done.exception, BrokerRefused)
    assert str(done.exception) == "t-1: the broker answered POLICY_VIOLATION"
    assert (fake.partitions[P0].start, fake.partitions[P1].start) == (2, 0)


def test_deletion_keeps_the_answers_of_other_leaders_when_one_is_silent() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", 1, 2, 2)
    cluster = fake.client(ClientOptions(call_timeout_ms=15_000))
    fake.brokers[2].fault_of = lambda api: Fault.SILENCE if api is ApiKey.DELETE_RECORDS else None
    # Nor can the leaders be looked up after it.
    fake.brokers[1].fault_of = lambda api: (
        Fault.SILENCE if api is ApiKey.METADATA and (ApiKey.DELETE_RECORDS, 2) in fake.brokers[2].seen else None
    )
    outcomes = Admin(cluster).try_delete_records({P0: 0, P1: 0, TopicPartition("t", 2): 0})
    assert outcomes[P0] == 0
    (refused,) = refusals(outcomes)
    assert str(refused).startswith("t-1, t-2: ")


def test_time_before_1970_is_not_taken_for_the_end_of_the_log(fake: FakeCluster) -> None:
    before = "1969-12-31T23:59:59.999"
    refused = run("delete-records", "t", "--until", before, "--execute")
    assert refused.exit_code == 2
    assert "before 1970" in refused.stderr
    assert json.loads(run("offsets", "t:0", "--since", before, "--json").stdout)["since_offset"] == 0


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
