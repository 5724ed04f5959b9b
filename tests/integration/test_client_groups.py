"""`ottla group` and its client core, against both brokers, with real members of both protocols."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.client.admin.lag import NO_PARTITION, lags
from ottla.client.groups.group_types import CLASSIC, CONSUMER, CommittedOffset
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.command_line import Done
from tests.command_line import ottla as run_verb
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName

RECORDS = 10
AGE_MS = 3_600_000
PARTITIONS = 3
EARLIEST_MS = 1_700_000_000_000


def ottla(bootstrap: str, *arguments: str, status: int = 0) -> Done:
    return run_verb(*arguments, "--bootstrap-server", bootstrap, status=status)


def fill(cluster: Cluster, topic: str, base_ms: int, padding: bytes = b"") -> None:
    """Ten batches of one record in each partition, a second between them."""
    with RawProducer(cluster) as producer:
        for partition in range(PARTITIONS):
            for number in range(RECORDS):
                batch = build_batch([Record(0, base_ms + number * 1_000, None, b"%d" % number + padding)])
                producer.send(TopicPartition(topic, partition), batch)
        producer.flush()


@pytest.fixture
def topic(cluster: Cluster, new_topic: NewTopicName) -> str:
    name = new_topic(PARTITIONS)
    fill(cluster, name, EARLIEST_MS)
    return name


@pytest.fixture
def group(cluster: Cluster, topic: str) -> str:
    """A group without members: partition 0 committed at 4, 1 at its end, 2 not at all."""
    group_id = f"group-{uuid.uuid4().hex[:8]}"
    offsets = {
        TopicPartition(topic, 0): CommittedOffset(4, metadata="note"),
        TopicPartition(topic, 1): CommittedOffset(10),
    }
    GroupAdmin(cluster).commit(group_id, offsets)
    return group_id


@contextlib.contextmanager
def member(bootstrap: str, group_id: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A live member with all partitions assigned."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "client.id": "reader-1",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        give_up_s = time.monotonic() + 30
        while len(consumer.assignment()) < PARTITIONS:
            assert time.monotonic() < give_up_s, "the member was assigned nothing"
            consumer.poll(0.2)
        yield consumer
    finally:
        consumer.close()


def test_group_without_members_is_listed_described_and_deleted(cluster: Cluster, group: str, topic: str) -> None:
    admin = GroupAdmin(cluster)
    [listed] = [each for each in admin.list_groups() if each.group_id == group]
    assert (listed.state, listed.kind) == ("Empty", CLASSIC)
    assert group in {each.group_id for each in admin.list_groups(states=["Empty"], kinds=[CLASSIC])}
    assert group not in {each.group_id for each in admin.list_groups(states=["Stable"])}
    assert group not in {each.group_id for each in admin.list_groups(kinds=[CONSUMER])}
    found = admin.describe(group)
    assert (found.state, found.kind, found.members, found.is_live) == ("Empty", CLASSIC, (), False)
    assert found.coordinator is not None
    assert found.coordinator.node_id in cluster.info.brokers
    committed = admin.committed(group)
    assert committed == {
        TopicPartition(topic, 0): CommittedOffset(4, -1, "note"),
        TopicPartition(topic, 1): CommittedOffset(10, -1, ""),
    }
    assert admin.committed(group, [TopicPartition(topic, 1), TopicPartition(topic, 2)]) == {
        TopicPartition(topic, 1): CommittedOffset(10, -1, "")
    }
    outcome = admin.delete_offsets(group, [TopicPartition(topic, 0)])
    assert outcome == {TopicPartition(topic, 0): None}
    assert TopicPartition(topic, 0) not in admin.committed(group)
    admin.delete(group)
    with pytest.raises(UnknownGroup):
        admin.describe(group)
    with pytest.raises(UnknownGroup):
        admin.delete(group)


def test_group_that_does_not_exist_has_no_offsets_and_cannot_be_described(cluster: Cluster) -> None:
    admin = GroupAdmin(cluster)
    assert admin.committed("no-such-group") == {}
    with pytest.raises(UnknownGroup):
        admin.describe("no-such-group")
    with pytest.raises(UnknownGroup):
        admin.delete_offsets("no-such-group", [TopicPartition("nothing", 0)])


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_live_group_shows_its_members_and_refuses_to_be_moved(
    bootstrap: str, cluster: Cluster, topic: str, protocol: str
) -> None:
    group_id = f"live-{uuid.uuid4().hex[:8]}"
    partitions = tuple(TopicPartition(topic, index) for index in range(PARTITIONS))
    admin = GroupAdmin(cluster)
    with member(bootstrap, group_id, topic, protocol) as consumer:
        consumer.commit(offsets=[ConfluentPartition(topic, 0, 7)], asynchronous=False)
        eventually(lambda: admin.describe(group_id).state == "Stable")
        found = admin.describe(group_id)
        assert found.kind == protocol
        assert found.is_live
        [one] = found.members
        assert (one.client_id, one.assignment) == ("reader-1", partitions)
        assert one.host
        assert found.owners() == dict.fromkeys(partitions, one)
        with pytest.raises(BrokerRefused):
            admin.commit(group_id, {partitions[0]: CommittedOffset(0)})
        with pytest.raises(BrokerRefused) as told:
            admin.delete(group_id)
        assert told.value.code is ErrorCode.NON_EMPTY_GROUP
        done = ottla(bootstrap, "group", "delete-offsets", group_id, "--topic", topic, status=1)
        text = f"error: group {group_id}, topic {topic} (partitions 0, 1, 2): members of the group read the topic\n"
        assert done.stderr.decode().startswith(text)
        refusal = admin.delete_offsets(group_id, [partitions[0]])[partitions[0]]
        assert refusal is not None
        assert refusal.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

        shown = ottla(bootstrap, "group", "describe", group_id).stdout.decode().splitlines()
        assert shown[0].split()[:7] == [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "LAG-SECONDS",
        ]
        first, second, _ = (line.split() for line in shown[1:])
        assert first[:6] == [group_id, topic, "0", "7", "10", "3"]
        assert second[:7] == [group_id, topic, "1", "-", "10", "-", "-"]
        assert first[7] == one.member_id
        assert first[9] == "reader-1"
        members = ottla(bootstrap, "group", "describe", group_id, "--members").stdout.decode()
        assert members.split()[-2:] == [str(PARTITIONS), f"{topic}-0,{topic}-1,{topic}-2"]
        state = ottla(bootstrap, "group", "describe", "--group", group_id, "--state").stdout.decode()
        assert "Stable" in state
        assert protocol in state

        done = ottla(
            bootstrap, "group", "reset-offsets", group_id, "--topic", topic, "--to-earliest", "--execute", status=1
        )
        assert b"is Stable with 1 member:" in done.stderr
        assert b"hint: stop its members first" in done.stderr
        done = ottla(bootstrap, "group", "delete", group_id, status=1)
        assert b"it has members" in done.stderr
    eventually(lambda: admin.describe(group_id).state == "Empty")
    assert ottla(bootstrap, "group", "delete", group_id).stdout.decode() == f"deleted group {group_id}\n"


def test_lag_is_shown_in_records_and_in_the_age_of_the_next_record(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(PARTITIONS)
    now_ms = cluster.clock.now_ms()
    fill(cluster, topic, now_ms - AGE_MS)
    behind, at_end, at_start = (TopicPartition(topic, index) for index in range(PARTITIONS))
    gone = TopicPartition(topic, PARTITIONS), TopicPartition("no-such-topic", 0)
    found = lags(cluster, {behind: 4, at_end: 10, at_start: 0, gone[0]: 5, gone[1]: 5})
    assert found[gone[0]] == found[gone[1]] == NO_PARTITION
    assert found[at_end] == (10, 0, 0.0, None)
    assert found[behind][:2] == (10, 6)
    assert found[at_start][:2] == (10, 10)
    since_s = (cluster.clock.now_ms() - now_ms) / 1000
    for partition, number in ((behind, 4), (at_start, 0)):
        age_s = found[partition].lag_seconds
        assert age_s is not None
        assert AGE_MS / 1000 - number <= age_s <= AGE_MS / 1000 - number + since_s


@pytest.mark.parametrize("padding_bytes", [2_000, 100_000, 900_000])
def test_lag_in_seconds_is_shown_for_every_partition_when_batches_are_large(
    cluster: Cluster, new_topic: NewTopicName, padding_bytes: int
) -> None:
    topic = new_topic(PARTITIONS)
    fill(cluster, topic, cluster.clock.now_ms() - AGE_MS, bytes(padding_bytes))
    found = lags(cluster, {TopicPartition(topic, index): 1 for index in range(PARTITIONS)})
    ages_s = [each.lag_seconds for each in found.values()]
    assert [age_s is not None and abs(age_s - AGE_MS / 1000) < 60 for age_s in ages_s] == [True] * PARTITIONS


def test_lag_of_a_reader_that_retention_has_overtaken_is_the_age_of_the_oldest_record(
    cluster: Cluster, new_topic: NewTopicName
) -> None:
    from ottla.client.admin.admin import Admin

    topic = new_topic(PARTITIONS)
    now_ms = cluster.clock.now_ms()
    fill(cluster, topic, now_ms - AGE_MS)
    partition = TopicPartition(topic, 0)
    Admin(cluster).delete_records({partition: 6})
    found = lags(cluster, {partition: 2})[partition]
    assert found[:2] == (10, 8)
    assert found.lag_seconds is not None
    assert abs(found.lag_seconds - (AGE_MS / 1000 - 6)) < 30


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to-earliest",), [0, 0, 0]),
        (("--to-latest",), [10, 10, 10]),
        (("--to-current",), [4, 10, 10]),
        (("--to-offset", "7"), [7, 7, 7]),
        (("--to-offset", "70"), [10, 10, 10]),
        (("--to-datetime", "2023-11-14T22:13:23"), [3, 3, 3]),
        (("--to-datetime", "2023-11-15T00:13:22.500+02:00"), [3, 3, 3]),
        (("--to-datetime", "2030-01-01T00:00:00"), [10, 10, 10]),
        (("--by-duration", "PT1H"), [10, 10, 10]),
        (("--by-duration", "P9000D"), [0, 0, 0]),
    ],
)
def test_offsets_are_reset_to_the_place_of_the_flag(
    bootstrap: str, cluster: Cluster, group: str, topic: str, where: tuple[str, ...], expected: list[int]
) -> None:
    admin = GroupAdmin(cluster)
    before = admin.committed(group)
    arguments = ("group", "reset-offsets", group, "--all-topics", *where)
    dry = ottla(bootstrap, *arguments, "--json")
    assert b"nothing was changed: --execute applies it" in dry.stderr
    assert [json.loads(line)["new_offset"] for line in dry.stdout.splitlines()] == expected
    assert admin.committed(group) == before
    ottla(bootstrap, *arguments, "--execute")
    found = admin.committed(group)
    assert [found[TopicPartition(topic, index)].offset for index in range(PARTITIONS)] == expected
    if where[-1] == "70":
        assert b"outside of the log (0 to 10); 10 is used" in dry.stderr


def test_offsets_are_shifted_exported_and_imported(
    bootstrap: str, cluster: Cluster, group: str, topic: str, tmp_path: Path
) -> None:
    admin = GroupAdmin(cluster)
    some = ("group", "reset-offsets", "--group", group, "--topic", f"{topic}:0,1")
    ottla(bootstrap, *some, "--shift-by", "-3", "--execute")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert {each: at.offset for each, at in admin.committed(group).items()} == {first: 1, second: 7}
    done = ottla(bootstrap, "group", "reset-offsets", group, "--topic", topic, "--shift-by", "1", status=1)
    assert f"{topic}-2 has no committed offset to shift".encode() in done.stderr
    exported = ottla(bootstrap, *some, "--to-current", "--export").stdout.decode()
    assert exported == f"{topic},0,1\n{topic},1,7\n"
    backup = tmp_path / "offsets.csv"
    backup.write_text(exported)
    ottla(bootstrap, *some, "--to-latest", "--execute")
    ottla(bootstrap, "group", "reset-offsets", group, "--from-file", str(backup), "--execute")
    assert {each: at.offset for each, at in admin.committed(group).items()} == {first: 1, second: 7}
    new_group = f"{group}-copy"
    done = ottla(bootstrap, "group", "reset-offsets", new_group, "--from-file", str(backup))
    assert b"there is no group" in done.stderr
    ottla(bootstrap, "group", "reset-offsets", new_group, "--from-file", str(backup), "--execute")
    assert admin.committed(new_group) == {first: CommittedOffset(1), second: CommittedOffset(7)}


def test_group_verbs_show_lines_and_objects(bootstrap: str, cluster: Cluster, group: str, topic: str) -> None:
    assert group in ottla(bootstrap, "group", "list").stdout.decode().split()
    objects = [json.loads(line) for line in ottla(bootstrap, "group", "list", "--json").stdout.splitlines()]
    assert {"group": group, "type": "classic", "protocol_type": "", "state": "Empty"} in objects
    lines = ottla(bootstrap, "group", "list", "--long", "--state", "empty").stdout.decode().splitlines()
    assert [group, "classic", "-", "Empty"] in [line.split() for line in lines]
    shown = ottla(bootstrap, "group", "describe", group)
    assert f"group {group} has no active members".encode() in shown.stderr
    rows = [line.split() for line in shown.stdout.decode().splitlines()[1:]]
    assert [row[2:6] for row in rows] == [["0", "4", "10", "6"], ["1", "10", "10", "0"]]
    assert rows[1][6] == "0"
    assert float(rows[0][6]) > AGE_MS / 1000
    [told] = [json.loads(line) for line in ottla(bootstrap, "group", "describe", group, "--json").stdout.splitlines()]
    assert [each["lag_records"] for each in told["offsets"]] == [6, 0]
    everything = [
        json.loads(line) for line in ottla(bootstrap, "group", "describe", "--all-groups", "--json").stdout.splitlines()
    ]
    assert [each["group"] for each in everything if each["group"] == group] == [group]
    assert told["offsets"][0]["metadata"] == "note"
    ottla(bootstrap, "group", "delete-offsets", group, "--topic", f"{topic}:0")
    assert TopicPartition(topic, 0) not in GroupAdmin(cluster).committed(group)
    assert ottla(bootstrap, "group", "delete", group, "--if-exists").stdout.decode() == f"deleted group {group}\n"
    assert (
        ottla(bootstrap, "group", "delete", group, "--if-exists").stdout.decode() == f"group {group} does not exist\n"
    )
    done = ottla(bootstrap, "group", "describe", group, status=1)
    assert f"error: group {group} does not exist".encode() in done.stderr
    assert b"hint: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("describe",), 2, "Name groups, or give --all-groups."),
        (("describe", "a", "--members", "--state"), 2, "exclude each other"),
        (("describe", "no-such-group"), 1, "group no-such-group does not exist"),
        (("delete",), 2, "Name at least one group."),
        (("delete", "no-such-group"), 1, "group no-such-group does not exist"),
        (("reset-offsets", "--topic", "t", "--to-latest"), 2, "Name a group."),
        (("reset-offsets", "g", "--topic", "t"), 2, "Give a target"),
        (("reset-offsets", "g", "--to-latest"), 2, "Name the topics"),
        (("reset-offsets", "g", "--topic", "no-such-topic", "--to-latest"), 1, "topic no-such-topic does not exist"),
        (("reset-offsets", "g", "--all-topics", "--to-latest"), 1, "has no committed offsets"),
        (
            ("reset-offsets", "g", "--topic", "t", "--to-datetime", "yesterday"),
            2,
            "is a moment like 2026-03-01T12:00:00",
        ),
        (("reset-offsets", "g", "--topic", "t", "--by-duration", "soon"), 2, "is a duration like PT1H30M"),
        (("reset-offsets", "g", "--from-file", "/no/such/file"), 1, "cannot read /no/such/file"),
        (("list", "--type", "other"), 2, "is not one of"),
        (("list", "--state", "Bogus"), 2, "--state is one of Stable, Empty, "),
    ],
)
def test_group_verbs_called_wrongly_say_what(
    bootstrap: str, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    done = ottla(bootstrap, "group", *arguments, status=status)
    assert expected in done.stderr.decode()
