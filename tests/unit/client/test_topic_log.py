"""A topic as the log of a program, on fake brokers."""

from __future__ import annotations

import pytest

from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.errors import CallTimedOut, UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster, FakePartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def log_of(fake: FakeCluster, options: ProducerOptions | None = None) -> TopicLog:
    return TopicLog(fake.client(ClientOptions(unknown_topic_wait_ms=0)), "t", options)


def values(log: TopicLog) -> list[bytes | None]:
    return [message.value for message in log.read()]


def test_read_returns_each_appended_record_once() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    log = log_of(fake)
    log.append([(b"k", b"1"), (b"k", None)])
    assert values(log) == [b"1", None]
    log.append([(b"k", b"3")])
    assert values(log) == [b"3"]
    assert values(log) == []


def test_read_covers_all_partitions_up_to_their_ends() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", 1, 2)
    log = log_of(fake)
    log.append([(b"k", b"0")], partition=0)
    log.append([(b"k", b"1")], partition=1)
    reader = log_of(fake)
    assert sorted(value or b"" for value in values(reader)) == [b"0", b"1"]
    assert reader.positions == {P0: 1, P1: 1}


def test_topic_that_does_not_exist_has_no_records() -> None:
    log = log_of(FakeCluster())
    assert values(log) == []
    assert not log.exists()
    with pytest.raises(UnknownTopic):
        log.ranges()


def test_reader_that_failed_at_a_message_reads_it_again() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    log = log_of(fake)
    log.append([(b"k", b"1"), (b"k", b"2"), (b"k", b"3")])
    for message in log.read():
        if message.value == b"2":
            break
    assert values(log) == [b"2", b"3"]


def test_read_starts_at_the_log_start_when_records_were_deleted() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    log = log_of(fake)
    log.append([(b"k", b"1")])
    log.append([(b"k", b"2")])
    fake.partitions[P0].start = 1
    assert values(log) == [b"2"]


def test_topic_that_was_recreated_is_read_from_its_new_records_on() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    log = log_of(fake)
    log.append([(b"k", b"1"), (b"k", b"2")])
    assert values(log) == [b"1", b"2"]
    fake.partitions[P0] = FakePartition(1)
    assert values(log) == []
    log.append([(b"k", b"3")])
    assert values(log) == [b"3"]


def test_refused_append_names_the_reason() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.INVALID_RECORD if api is ApiKey.PRODUCE else None
    with pytest.raises(NotAppended) as failed:
        log_of(fake).append([(b"k", b"1")])
    assert "INVALID_RECORD" in str(failed.value)
    assert values(log_of(fake)) == []


def test_append_that_is_not_acknowledged_in_time_fails() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.NOT_ENOUGH_REPLICAS if api is ApiKey.PRODUCE else None
    with pytest.raises(NotAppended) as failed:
        log_of(fake).append([(b"k", b"1")], timeout_ms=500)
    assert isinstance(failed.value.reason, CallTimedOut)
