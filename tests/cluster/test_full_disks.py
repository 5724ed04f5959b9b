"""Two brokers, one of them on a disk that another program fills: as a follower it falls behind and comes back, as a
leader it gives way after some seconds where another replica is in sync, and refuses records where none is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cluster.conftest import Member
from tests.cluster.traffic import WITHIN_S, consume, metadata, produce
from tests.eventually import eventually
from tests.small_disk import empty, fill, small_disk

VALUES = [f"{number:01000d}" for number in range(300)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 40) as at:
        yield at


@pytest.mark.timeout(600)
def test_broker_with_a_full_disk_hands_over_or_refuses_as_the_only_replica(disk: Path, member: Member) -> None:
    settings = {
        "replica_lag_time_max_ms": "1500",
        "offsets_topic_replication_factor": "2",
        "offsets_topic_num_partitions": "1",
    }
    roomy = member(1, **settings)
    full = member(2, str(disk / "data"), **settings)
    bootstrap = roomy.bootstrap
    topics = [
        NewTopic("followed", 1, replica_assignment=[[1, 2]]),
        NewTopic("led", 1, replica_assignment=[[2, 1]]),
        NewTopic("alone", 1, replica_assignment=[[2]]),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(WITHIN_S)

    def in_sync(topic: str) -> list[int]:
        return sorted(metadata(bootstrap, topic).topics[topic].partitions[0].isrs)

    for topic, nodes in (("followed", [1, 2]), ("led", [1, 2]), ("alone", [2])):
        eventually(partial(in_sync, topic), partial(eq, nodes))
        produce(bootstrap, topic, VALUES, acks="all")

    fill(disk)
    eventually(lambda: any("disk.full" in line for line in full.log_lines))
    produce(bootstrap, "followed", VALUES, acks="all")
    eventually(partial(in_sync, "followed"), lambda nodes: nodes == [1])
    # The other one leads as soon as the disk has been full for some seconds: the producer waits as long.
    produce(bootstrap, "led", VALUES, acks="all")
    assert in_sync("led") == [1]
    eventually(lambda: any("disk.still_full" in line for line in full.log_lines))
    # It keeps leading where no other replica has the records that it has acknowledged.
    assert consume(bootstrap, "alone", len(VALUES), "readers") == VALUES
    with pytest.raises(AssertionError, match="MSG_TIMED_OUT"):
        produce(bootstrap, "alone", VALUES[:1], acks="all", message_timeout_ms=2_000)

    empty(disk)
    produce(bootstrap, "alone", VALUES[1:], acks="all")
    assert consume(bootstrap, "alone", 2 * len(VALUES) - 1, "all")[len(VALUES) :] == VALUES[1:]
    for topic in ("followed", "led"):
        eventually(partial(in_sync, topic), lambda nodes: nodes == [1, 2])
    assert consume(bootstrap, "led", 2 * len(VALUES), "more") == VALUES * 2
    roomy.stop()
    assert consume(full.bootstrap, "followed", 2 * len(VALUES), "others") == VALUES * 2
