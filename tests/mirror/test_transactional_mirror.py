"""A mirror with transactions: readers of committed records see each record once, through kills and suspensions."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import lt
from typing import Final
from unittest.mock import patch

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.mirror import Mirror, MirrorOptions, Names
from ottla.mirror.copy_transactions import CopyTransactions, RolledBack
from ottla.mirror.options import FAILURES_MAX
from ottla.mirror.progress_topic import JournalNotWritten
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.testing import ControlledBroker, Namespace
from tests.eventually import eventually
from tests.mirror.mirrored import (
    MirrorProcess,
    Writer,
    committed_content_of,
    content_of,
    copied_count,
    mirror_process,
    write,
)

PARTITIONS: Final = 3
SESSION_MS: Final = 500
FLAGS: Final = (
    "--transactional",
    "--progress-interval-ms",
    "300",
    "--session-timeout-ms",
    str(SESSION_MS),
    "--topics",
    r".*clicks\.all",
)
KILLS: Final = int(os.environ.get("OTTLA_MIRROR_KILLS", "6"))
OPTIONS: Final = MirrorOptions(session_timeout_ms=SESSION_MS, is_transactional=True)

MakeMirror = Callable[..., Mirror]


def test_each_record_is_committed_once_through_kills_and_a_mirror_that_was_suspended_past_its_session(
    names: Namespace,
    live: ControlledBroker,
    offline: ControlledBroker,
    mirror_of: MakeMirror,
    record_property: Callable[[str, object], None],
) -> None:
    seed = int(os.environ.get("OTTLA_MIRROR_SEED", str(random.SystemRandom().randrange(1 << 30))))
    chance = random.Random(seed)
    record_property("simulation", f"kills of a transactional mirror, OTTLA_MIRROR_SEED={seed}")
    topic = str(names.topic("clicks.all", partitions=PARTITIONS))
    copied = partial(copied_count, offline.bootstrap, topic, PARTITIONS)
    with Writer(live.bootstrap, topic, PARTITIONS, pause_s=0.01) as writer:
        for _ in range(KILLS):
            process = MirrorProcess(live.bootstrap, offline.bootstrap, *FLAGS)
            try:
                eventually(copied, partial(lt, copied()))
                # A random sleep instead of a wait for a state: the kill must come at any time.
                time.sleep(chance.uniform(0, 0.6))
            finally:
                said = process.kill()
            assert "Traceback" not in said, said
        with mirror_process(live.bootstrap, offline.bootstrap, *FLAGS) as first:
            eventually(copied, partial(lt, copied()))
            first.suspend()
            with mirror_process(live.bootstrap, offline.bootstrap, *FLAGS) as second:
                eventually(copied, partial(lt, writer.records_count))
                first.resume()
                # Without a transaction its batches in flight would be stored beside the other's.
                eventually(lambda: "taken over" in first.read_said().readline())
                assert second.stop()["stuck"] == {}
    report = mirror_of(OPTIONS).run(once=True)
    assert not report.stuck, report
    expected, found = content_of(live.bootstrap, topic), committed_content_of(offline.bootstrap, topic)
    assert {number: len(rows) for number, rows in found.items()} == {
        number: len(rows) for number, rows in expected.items()
    }
    assert found == expected, f"seed {seed}"
    counted = [each.counts for each in report.partitions]
    assert sum(each.records for each in counted) == writer.records_count
    assert [each.duplicate_records + each.foreign_records for each in counted] == [0] * PARTITIONS


def test_groups_continue_at_the_same_record_although_markers_take_offsets(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic, group = str(names.topic("clicks.groups")), names.name("readers")
    place = TopicPartition(topic, 0)
    for number in range(3):
        write(live.bootstrap, topic, [b"%d-%d" % (number, each) for each in range(4)])
        # Each run commits one transaction.
        mirror_of(OPTIONS).run(once=True)
    with Cluster(live.bootstrap) as cluster:
        GroupAdmin(cluster).commit(group, {place: CommittedOffset(9)})
    assert mirror_of(OPTIONS).run(once=True).committed_group_offsets == 1
    with Cluster(offline.bootstrap) as cluster:
        # Two markers precede the second record of the third transaction.
        assert GroupAdmin(cluster).committed(group)[place].offset == 11
    assert committed_content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)


def test_batch_that_the_target_refuses_stops_its_partition_and_what_precedes_it_is_committed(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = str(names.topic("clicks.refused", partitions=2))
    keeping = replace(OPTIONS, configs=Names(()))
    write(live.bootstrap, topic, [b"first"])
    mirror_of(keeping).run(once=True)
    with Cluster(offline.bootstrap) as cluster:
        small = ConfigChange("max.message.bytes", ConfigOperation.SET, "1000")
        Admin(cluster).alter_configs(ConfigResource(ResourceType.TOPIC, topic), [small])
    for value in (b"second", b"x" * 2_000, b"after"):
        write(live.bootstrap, topic, [value])
    write(live.bootstrap, topic, [b"other"], partition=1)
    report = mirror_of(keeping).run(once=True)
    assert [each.partition for each in report.stuck] == [0]
    assert "MESSAGE_TOO_LARGE" in str(report.stuck[0].problem)
    found = committed_content_of(offline.bootstrap, topic)
    assert {number: [row[2] for row in rows] for number, rows in found.items()} == {
        0: [b"first", b"second"],
        1: [b"other"],
    }
    # The source does not have the setting: it is removed on the target, and the remaining records follow.
    assert not mirror_of(OPTIONS).run(once=True).stuck
    assert committed_content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)


def test_run_with_an_end_whose_transactions_are_all_aborted_ends_and_says_why(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = str(names.topic("clicks.aborted"))
    write(live.bootstrap, topic, [b"first"])
    notes: list[str] = []
    with (
        patch.object(CopyTransactions, "commit", side_effect=RolledBack(OttlaError("the target has no room"), None)),
        pytest.raises(JournalNotWritten, match="the progress is not stored: the target has no room"),
    ):
        mirror_of(OPTIONS, notes).run(once=True)
    assert sum("the target has no room" in each for each in notes) >= FAILURES_MAX, notes
    assert not mirror_of(OPTIONS).run(once=True).stuck
    assert committed_content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)


def test_records_of_another_writer_are_counted_between_those_of_transactions(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = str(names.topic("clicks.all"))
    copied = partial(copied_count, offline.bootstrap, topic, 1)
    with (
        Writer(live.bootstrap, topic, 1, pause_s=0.02) as writer,
        mirror_process(live.bootstrap, offline.bootstrap, *FLAGS, "--foreign-records", "accept") as process,
    ):
        for number in range(5):
            eventually(copied, partial(lt, copied() + 20))
            write(offline.bootstrap, topic, [b"foreign %d" % number])
        eventually(copied, partial(lt, writer.records_count))
        assert process.stop()["stuck"] == {}
    report = mirror_of(replace(OPTIONS, foreign_records="accept")).run(once=True)
    assert [(each.counts.duplicate_records, each.counts.foreign_records) for each in report.partitions] == [(0, 5)]
    found = committed_content_of(offline.bootstrap, topic)[0]
    assert [row for row in found if not (row[2] or b"").startswith(b"foreign")] == content_of(live.bootstrap, topic)[0]


def test_mirror_copies_without_transactions_and_says_so_where_the_target_has_none(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = str(names.topic("clicks.plain"))
    write(live.bootstrap, topic, [b"first"])
    notes: list[str] = []
    supports = Connection.supports

    def supports_no_transactions(connection: Connection, api: ApiKey, *, at_least: int = 0) -> bool:
        return api is not ApiKey.END_TXN and supports(connection, api, at_least=at_least)

    with patch.object(Connection, "supports", supports_no_transactions):
        mirror_of(OPTIONS, notes).run(once=True)
    assert "the target has no transactions: records are copied without" in notes
    # No marker takes an offset.
    assert copied_count(offline.bootstrap, topic, 1) == 1
