"""From a refused partition to a served one: the output of the log, doctor and repair."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla, ottla_process

BATCHES = 30
DAMAGED = 11


def fill(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("orders", 2, configs={"retention.ms": "-1"})
        with RawProducer(cluster) as producer:
            for number in range(BATCHES):
                for partition in range(2):
                    batch = build_batch([Record(0, 1_000 + number, None, b"%d" % number)])
                    producer.send(TopicPartition("orders", partition), batch)
            producer.flush()
        read = {TopicPartition("orders", 0): CommittedOffset(5), TopicPartition("orders", 1): CommittedOffset(BATCHES)}
        GroupAdmin(cluster).commit("readers", read)


def values(broker: RunningBroker, partition: int) -> list[bytes | None]:
    with Cluster(broker.bootstrap) as cluster:
        fetched = fetch_raw(cluster, "orders", partition, 0)
    return [record.value for batch in fetched.batches() for record in decode_batch(batch)]


def damage(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // BATCHES * DAMAGED + 67] ^= 1
    path.write_bytes(content)


def check_group_is_described(broker: RunningBroker) -> None:
    """The partition that is refused has no lag, and does not hide the lag of the other."""
    begin_s = time.monotonic()
    shown = ottla("group", "describe", "readers", "-b", broker.bootstrap)
    assert time.monotonic() - begin_s < 40, "it was waited for"
    assert [line.split()[2:7] for line in shown.out.splitlines()[1:]] == [
        ["0", "5", "-", "-", "-"],
        ["1", "30", "30", "0", "0"],
    ]
    assert "note: no lag of orders-0: no broker leads it now" in shown.err
    [told] = ottla("group", "describe", "--all-groups", "--json", "-b", broker.bootstrap).out.splitlines()
    assert [each["problem"] for each in json.loads(told)["offsets"]] == ["orders-0: no broker leads it now", None]


def test_refused_partition_is_reported_repaired_and_served_again() -> None:
    expected = [b"%d" % number for number in range(BATCHES)]
    with RunningBroker() as broker:
        fill(broker)
        broker.kill()
        damage(broker.data_dir)
        broker.start()
        [refused] = [line for line in broker.log_lines if "log.refused" in line and "partition=orders-0" in line]
        assert "`ottla log repair DIR`" in refused
        assert values(broker, 1) == expected, "the other partition is served"
        told = ottla("doctor", "--data-dir", broker.data_dir, "--listen", broker.bootstrap, "--json", status=1).out
        [problem] = [found for line in told.splitlines() if (found := json.loads(line))["level"] == "problem"]
        assert problem["text"] == "partitions that are not served: orders-0"
        assert "ottla log repair" in problem["advice"]
        check_group_is_described(broker)
        assert "is in use by process" in ottla("log", "repair", broker.data_dir, status=1).err
        broker.stop()

        shown = ottla("log", "repair", broker.data_dir, status=1).out
        assert shown.startswith("orders-0: lost: 1 offset in 1 place (")
        assert f"offsets {DAMAGED} to {DAMAGED}: " in shown
        ottla("log", "repair", broker.data_dir, "orders-0", "--execute")
        assert "nothing is damaged" in ottla("log", "repair", broker.data_dir).err
        lines_before = len(broker.log_lines)
        broker.start()
        assert not [line for line in broker.log_lines[lines_before:] if "log.refused" in line]
        assert values(broker, 0) == expected[:DAMAGED] + expected[DAMAGED + 1 :]
        assert values(broker, 1) == expected


def test_partition_without_its_directory_is_refused_and_its_topic_can_be_deleted(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        fill(broker)
        broker.stop()
        shutil.rmtree(tmp_path / "orders-1")
        broker.start()
        refused = [line for line in broker.log_lines if "log.refused" in line]
        assert len(refused) == 1
        assert f"orders-1 is gone; it was flushed up to offset {BATCHES}" in refused[0]
        assert not (tmp_path / "orders-1").exists()
        assert len(values(broker, 0)) == BATCHES
        ottla("topic", "delete", "orders", "--bootstrap-server", broker.bootstrap)
        ottla("topic", "create", "orders", "--bootstrap-server", broker.bootstrap)
        assert values(broker, 0) == []


def test_partition_whose_flushed_end_is_unknown_after_a_kill_is_refused_until_it_is_repaired(tmp_path: Path) -> None:
    expected = [b"%d" % number for number in range(BATCHES)]
    with RunningBroker(tmp_path) as broker:
        fill(broker)
        broker.kill()
        # As after a disk that lost a part of both the acknowledged records and the flushed ends.
        segment = tmp_path / "orders-0" / f"{0:020}.log"
        size_bytes = segment.stat().st_size
        # The first ten batches are a byte shorter: their values have one digit.
        left_bytes = size_bytes - 10 * ((size_bytes + 10) // BATCHES) - 1
        kept = BATCHES - 11
        os.truncate(segment, left_bytes)
        (tmp_path / "flushed-ends").unlink()
        broker.start()
        refused = [line for line in broker.log_lines if "log.refused" in line]
        # Partitions of __consumer_offsets that hold commits are refused, too.
        assert any("orders-0 holds records" in line and "`ottla log repair DIR`" in line for line in refused)
        with Cluster(broker.bootstrap, ClientOptions(call_timeout_ms=1_000)) as cluster, pytest.raises(ClientError):
            fetch_raw(cluster, "orders", 0, 0)
        assert segment.stat().st_size == left_bytes
        broker.stop()
        assert "no record of how far orders-0 was flushed" in ottla("log", "verify", tmp_path, status=1).out
        assert "no record of how far orders-0 was flushed" in ottla("doctor", "--data-dir", tmp_path, status=1).out
        shown = ottla("log", "repair", tmp_path, "orders-0", status=1).out
        assert f"records may be lost at its end, kept: {kept} offsets" in shown
        assert f"nothing proves that it ended at offset {kept}" in shown
        assert segment.stat().st_size == left_bytes
        ottla("log", "repair", tmp_path, "--execute")
        lines_before = len(broker.log_lines)
        broker.start()
        assert not [line for line in broker.log_lines[lines_before:] if "log.refused" in line]
        assert values(broker, 0) == expected[:kept]
        assert values(broker, 1) == expected


def test_broker_refuses_a_directory_without_its_tree_until_repair_has_rebuilt_it(tmp_path: Path) -> None:
    expected = [b"%d" % number for number in range(BATCHES)]
    data_dir = tmp_path / "data"
    with RunningBroker(data_dir) as broker:
        fill(broker)
        broker.stop()
        (data_dir / "tree.sqlite").rename(tmp_path / "tree.sqlite")
        before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != ".lock"}
        refused = ottla_process("serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", status=1).err
        assert "tree.sqlite: is missing, and its directory is not new" in refused
        assert "hint: the partitions' own directories are untouched by this: `ottla restore`" in refused
        assert "`ottla log repair DIR`" in refused
        after = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != ".lock"}
        assert after == before

        ottla("log", "repair", data_dir, status=1)
        assert not (data_dir / "tree.sqlite").exists()
        shown = ottla("log", "repair", data_dir, "--execute").out
        assert "partitions=2 retention.ms=-1 retention.bytes=-1" in shown
        lines_before = len(broker.log_lines)
        broker.start()
        assert not [
            line for line in broker.log_lines[lines_before:] if "log.refused" in line or "without_topic" in line
        ]
        assert [values(broker, partition) for partition in range(2)] == [expected, expected]
        with Cluster(broker.bootstrap) as cluster:
            committed = GroupAdmin(cluster).committed("readers")
            assert {each.partition: found.offset for each, found in committed.items()} == {0: 5, 1: BATCHES}
            with RawProducer(cluster) as producer:
                producer.send(TopicPartition("orders", 0), build_batch([Record(0, 1_000, None, b"more")]))
                producer.flush()
        assert values(broker, 0) == [*expected, b"more"]


def test_damaged_partition_of_committed_offsets_is_named_and_the_other_groups_are_listed(tmp_path: Path) -> None:
    groups = [f"readers-{number}" for number in range(4)]
    with RunningBroker(tmp_path) as broker:
        fill(broker)
        with Cluster(broker.bootstrap) as cluster:
            count = len(cluster.partitions(OFFSETS_TOPIC))
            for group in groups:
                GroupAdmin(cluster).commit(group, {TopicPartition("orders", 0): CommittedOffset(5)})
        damaged = f"{OFFSETS_TOPIC}-{partition_of(groups[0], count)}"
        broker.stop()
        path = tmp_path / damaged / f"{0:020}.log"
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
        broker.start()
        done = ottla("group", "list", "-b", broker.bootstrap)
        others = [group for group in groups if partition_of(group, count) != partition_of(groups[0], count)]
        assert len(others) >= 2
        assert set(others) <= set(done.out.splitlines())
        assert groups[0] not in done.out
        assert f"note: groups of {damaged} are not shown: its coordinator could not load it" in done.err
        none = ottla("group", "list", "--type", "consumer", "-b", broker.bootstrap)
        assert (none.out, none.err) == ("", done.err), "no group is like that, and that is no failure"

        arguments = ("group", "reset-offsets", others[0], "--all-topics", "--to-current", "--export")
        exported = ottla(*arguments, "-b", broker.bootstrap)
        assert exported.out.splitlines() == ["orders,0,5", f"orders,1,{BATCHES}"]
        assert exported.err == "note: orders-1 has no committed offset: the log's end is used\n"
