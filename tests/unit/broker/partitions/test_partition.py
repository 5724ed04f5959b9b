"""A partition: its role, which acks waits for which end, what wakes a fetch, and what a truncation takes back."""

from __future__ import annotations

import pytest

from ottla.broker.partitions.partition import NO_WAIT, NotEnoughReplicas, NotLeader
from ottla.broker.partitions.waiting_requests import ACKS_ALL, ACKS_LEADER, WakeOn
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.storage.errors import StorageError
from ottla.storage.log_config import LogConfig
from tests.unit.broker.roles import ELSEWHERE, HERE, lead, one_of, replicated
from tests.unit.broker.served_log import ServedLog
from tests.unit.storage.logs import truncate_log

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Produce:
    """A waiting produce that keeps what happened to its slots: 0 for released, else the error code."""

    def __init__(self) -> None:
        self.outcomes: dict[int, int] = {}
        self.deadline_ms = 1_000
        self.is_over = False

    def release(self, slot: int) -> None:
        assert slot not in self.outcomes, "a slot ends once"
        self.outcomes[slot] = 0

    def fail(self, slot: int, error_code: int) -> None:
        assert slot not in self.outcomes, "a slot ends once"
        self.outcomes[slot] = error_code

    def is_expired(self, now_ms: int) -> bool:
        return now_ms >= self.deadline_ms

    def expire(self) -> None:
        self.is_over = True


class Fetch:
    """A waiting fetch that counts how often it was woken."""

    def __init__(self) -> None:
        self.woken_count = 0
        self.watermarks_count = 0

    def on_watermark(self) -> None:
        self.watermarks_count += 1

    def on_readable(self) -> None:
        self.woken_count += 1


def produce(log: ServedLog, waiting: Produce, slot: int, acks: int = ACKS_ALL) -> None:
    """Append a batch of one record and wait for it, as the produce handler does."""
    _, required_end, _ = log.append(acks=acks)
    assert required_end != NO_WAIT
    log.partition.waiting.park_produce(required_end, acks, waiting, slot)


def test_partition_appends_nothing_before_it_is_led() -> None:
    log = ServedLog("t", leader_epoch=None)
    with pytest.raises(NotLeader) as refused:
        log.append()
    assert refused.value.error_code is NOT_LEADER
    assert log.partition.log_end_offset == 0
    lead(log.partition, 4)
    assert log.append() == (0, 1, 0)
    assert log.partition.leader_epoch == 4


def test_partition_has_one_leader_epoch_and_stamps_it() -> None:
    log = ServedLog("t", leader_epoch=3)
    log.append()
    lead(log.partition, 5)
    log.append()
    assert log.partition.leader_epoch == log.log.leader_epoch == 5
    assert [log.partition.epoch_of(offset) for offset in (0, 1)] == [3, 5]


@pytest.mark.parametrize(
    ("known_epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_client_with_another_leader_epoch_gets_an_error(known_epoch: int, code: int) -> None:
    assert ServedLog("t", leader_epoch=3).partition.leadership_error(known_epoch) == code


def test_partition_that_is_not_led_refuses_clients_whatever_epoch_they_know() -> None:
    partition = ServedLog("t", leader_epoch=None).partition
    assert partition.leadership_error(-1) == NOT_LEADER
    read = partition.read(-1, 0, -1, 1_000, whole_first_batch=True)
    assert (read.error_code, read.high_watermark, read.run) == (NOT_LEADER, -1, None)


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_produce_is_released_when_its_batch_is_stable(acks: int) -> None:
    log, waiting = ServedLog("t"), Produce()
    produce(log, waiting, 0, acks)
    flush = log.begin_flush()
    produce(log, waiting, 1, acks)
    assert log.partition.waiting.has_produces
    assert waiting.outcomes == {}
    log.end_flush(flush)
    assert waiting.outcomes == {0: 0}
    log.become_stable()
    assert waiting.outcomes == {0: 0, 1: 0}
    assert not log.partition.waiting.has_produces


def test_produce_for_one_replica_does_not_wait_for_the_others() -> None:
    log, waiting = ServedLog("t", leader_epoch=None), Produce()
    log.partition.on_state(replicated(HERE, 1, 0), one_of(HERE, ELSEWHERE), 0)
    for slot, acks in enumerate((ACKS_ALL, ACKS_LEADER)):
        produce(log, waiting, slot, acks)
    log.become_stable()
    assert waiting.outcomes == {1: 0}
    assert (log.partition.stable_end, log.partition.high_watermark) == (2, 0)


def test_append_needs_no_wait_when_it_is_stable_at_once() -> None:
    log = ServedLog("t", config=LogConfig(flush_policy="os"))
    assert [log.append(acks=acks)[1] for acks in (ACKS_ALL, ACKS_LEADER, 0)] == [NO_WAIT] * 3
    assert log.partition.high_watermark == 3


def test_append_without_acks_never_waits() -> None:
    log = ServedLog("t")
    assert log.append(acks=0) == (0, NO_WAIT, 0)
    assert log.partition.high_watermark == 0


def test_acks_all_is_refused_below_min_insync_replicas_and_appends_nothing() -> None:
    log = ServedLog("t", config=LogConfig(min_insync_replicas=2))
    with pytest.raises(NotEnoughReplicas):
        log.append(acks=ACKS_ALL)
    assert log.partition.log_end_offset == 0
    assert log.append(acks=ACKS_LEADER)[0] == 0
    log.partition.update_config(LogConfig(min_insync_replicas=1), 0)
    assert log.append(acks=ACKS_ALL)[0] == 1


def test_groups_go_on_when_the_broker_asks_for_more_replicas_than_there_are() -> None:
    log = ServedLog(OFFSETS_TOPIC, config=LogConfig(min_insync_replicas=2))
    assert log.append(acks=ACKS_ALL)[0] == 0


def test_expired_produces_of_both_kinds_are_answered_and_their_batches_released_later() -> None:
    log = ServedLog("t")
    all_replicas, one_replica, patient = Produce(), Produce(), Produce()
    patient.deadline_ms = 2_000
    produce(log, all_replicas, 0)
    produce(log, one_replica, 0, ACKS_LEADER)
    produce(log, patient, 0)
    log.partition.waiting.expire_produces(1_000)
    assert [each.is_over for each in (all_replicas, one_replica, patient)] == [True, True, False]
    log.become_stable()
    assert patient.outcomes == {0: 0}


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_retired_partition_fails_its_produces_and_wakes_its_fetches(acks: int) -> None:
    log, waiting, fetch, replica = ServedLog("t"), Produce(), Fetch(), Fetch()
    produce(log, waiting, 0, acks)
    log.partition.waiting.park_fetch(fetch)
    log.partition.waiting.park_fetch(replica, WakeOn.APPEND)
    log.partition.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not log.partition.is_served
    assert waiting.outcomes == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (fetch.woken_count, replica.woken_count) == (1, 1)
    log.become_stable()
    assert waiting.outcomes == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_fetches_are_woken_by_what_they_wait_for() -> None:
    log, consumer, replica = ServedLog("t"), Fetch(), Fetch()
    log.partition.waiting.park_fetch(consumer)
    log.partition.waiting.park_fetch(replica, WakeOn.APPEND)
    log.append()
    assert (consumer.woken_count, replica.woken_count) == (0, 1)
    log.become_stable()
    assert (consumer.woken_count, replica.woken_count) == (1, 1)
    for fetch in (consumer, replica):
        log.partition.waiting.forget_fetch(fetch)
    log.add()
    assert (consumer.woken_count, replica.woken_count) == (1, 1)


def test_truncation_takes_the_high_watermark_back_to_the_logs_end() -> None:
    log, fetch = ServedLog("t"), Fetch()
    for _ in range(3):
        log.add()
    log.partition.waiting.park_fetch(fetch)
    truncate_log(log.log, 1)
    assert (log.partition.high_watermark, log.partition.last_stable_offset, log.partition.log_end_offset) == (1, 1, 1)
    assert fetch.woken_count == 1
    read = log.partition.read(-1, 0, -1, 1_000, whole_first_batch=True)
    assert read.high_watermark == 1
    assert log.partition.read(-1, 2, -1, 1_000, whole_first_batch=True).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.add()
    assert (log.partition.high_watermark, fetch.woken_count) == (2, 2)


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_truncation_fails_the_produces_above_the_new_end_and_keeps_the_others(acks: int) -> None:
    log, waiting = ServedLog("t"), Produce()
    for slot in range(3):
        produce(log, waiting, slot, acks)
    truncate_log(log.log, 1)
    assert waiting.outcomes == {1: NOT_LEADER, 2: NOT_LEADER}
    produce(log, waiting, 3, acks)
    log.become_stable()
    assert waiting.outcomes == {0: 0, 1: NOT_LEADER, 2: NOT_LEADER, 3: 0}


def test_truncation_that_fails_leaves_no_high_watermark_above_the_log() -> None:
    log = ServedLog("t")
    for _ in range(2):
        log.add()
    log.disk.faults.fail("truncate", path_contains=".log")
    with pytest.raises(StorageError):
        truncate_log(log.log, 1)
    assert log.partition.high_watermark <= log.partition.log_end_offset
