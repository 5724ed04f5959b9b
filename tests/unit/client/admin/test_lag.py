from __future__ import annotations

import pytest

from ottla.client.admin.lag import NO_PARTITION, lags, next_record_times
from ottla.client.wire.leader_calls import leaders_now
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster

NOWHERE = 99


def fill(fake: FakeCluster, partitions: list[TopicPartition], value_bytes: int) -> None:
    """Two batches of one record each, the first a minute old."""
    for partition in partitions:
        for age_ms in (60_000, 30_000):
            time_ms = fake.clock.now_ms() - age_ms
            fake.partitions[partition].append(build_batch([Record(0, time_ms, None, bytes(value_bytes))]))


def test_partition_that_nobody_leads_does_not_hide_the_others_and_is_not_waited_for() -> None:
    fake = FakeCluster(2)
    led, lost, other = fake.add_topic("orders", 1, NOWHERE, 2)
    fill(fake, [led, lost, other], 10)
    begin_ms = fake.clock.monotonic_ms()
    found = lags(fake.client(), {led: 0, lost: 0, other: None})
    assert found[led][:2] == (2, 2)
    assert 60.0 <= (found[led].lag_seconds or 0) < 61.0
    assert found[lost] == (None, None, None, "orders-1: no broker leads it now")
    assert found[other] == (2, None, None, None)
    assert fake.clock.monotonic_ms() - begin_ms < 500


def test_partition_that_refuses_does_not_hide_the_others() -> None:
    fake = FakeCluster()
    sound, broken = fake.add_topic("orders", 1, 1)
    fill(fake, [sound, broken], 10)
    fake.brokers[1].error_of = lambda api, partition: ErrorCode.KAFKA_STORAGE_ERROR if partition == broken else None
    gone = TopicPartition("orders", 7), TopicPartition("nothing", 0)
    found = lags(fake.client(), {sound: 1, broken: 1, gone[0]: 1, gone[1]: 1})
    assert found[sound][:2] == (2, 1)
    assert found[broken].problem == "orders-1: the broker answered KAFKA_STORAGE_ERROR"
    assert found[gone[0]] == found[gone[1]] == NO_PARTITION


def test_lag_is_asked_again_when_a_leader_has_just_moved() -> None:
    fake = FakeCluster(2)
    [partition] = fake.add_topic("orders", 1)
    refused = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    fake.brokers[1].error_of = lambda api, _: next(refused, None) if api is ApiKey.LIST_OFFSETS else None
    assert lags(fake.client(), {partition: 0})[partition] == (0, 0, 0.0, None)


@pytest.mark.parametrize("value_bytes", [10, 1_000, 30_000, 3 * 2**20])
@pytest.mark.parametrize("leaves_cut_batches_out", [False, True])
def test_next_record_has_its_time_in_every_partition_however_large_its_batch(
    value_bytes: int, leaves_cut_batches_out: bool
) -> None:
    fake = FakeCluster()
    fake.brokers[1].leaves_cut_batches_out = leaves_cut_batches_out
    partitions = fake.add_topic("orders", 1, 1, 1)
    fill(fake, partitions, value_bytes)
    time_ms = fake.clock.now_ms() - 60_000
    assert next_record_times(fake.client(), dict.fromkeys(partitions, 0)) == dict.fromkeys(partitions, time_ms)


def test_next_record_that_never_comes_is_not_asked_for_without_end() -> None:
    fake = FakeCluster()
    partitions = fake.add_topic("orders", 1, 1)
    assert next_record_times(fake.client(), dict.fromkeys(partitions, 0)) == {}
    assert [api for api, _ in fake.brokers[1].seen].count(ApiKey.FETCH) == 3


def test_leaders_are_found_with_one_question_for_all() -> None:
    fake = FakeCluster()
    partitions = fake.add_topic("orders", *[NOWHERE] * 50)
    client = fake.client()
    groups, failures = leaders_now(client, partitions, client.retrying.deadline())
    assert groups == {}
    assert list(failures) == partitions
    assert [api for api, _ in fake.brokers[1].seen].count(ApiKey.METADATA) == 1
