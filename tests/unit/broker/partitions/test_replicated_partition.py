"""A partition with several replicas: what its leader acknowledges and shows, and what its follower takes over."""

from __future__ import annotations

import errno
import logging

import pytest

from ottla.broker.partitions.follower_log import AppliedFetch
from ottla.broker.partitions.partition import (
    EPOCH_START_WAIT_MS,
    WITHHELD_READS_MAX_MS,
    NotEnoughReplicas,
    NotLeader,
    Partition,
)
from ottla.broker.partitions.partition_read import PartitionRead, ReplicaReader
from ottla.broker.partitions.sequence_gaps import GAP_PATIENCE_MS
from ottla.broker.partitions.waiting_requests import ACKS_ALL, ACKS_LEADER, WakeOn
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC, NodeId, TopicPartition
from ottla.model.partition_state import ChangeResult
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.replication.following import FollowerStep
from ottla.replication.replica import Role
from ottla.runtime.offload import INLINE, run_inline
from ottla.storage.errors import DiskFull, LogOffline, OutOfOrderSequence
from ottla.storage.log_config import LogConfig
from tests.unit.broker.leader_answers import NO_RECORDS, fetched
from tests.unit.broker.partitions.test_partition import Fetch, Produce, produce
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import MANY_BYTES, ServedLog, one_record

THIRD = NodeId(3)
ALL = (HERE, ELSEWHERE, THIRD)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOT_AVAILABLE = ErrorCode.OFFSET_NOT_AVAILABLE
AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
LAG_MS = 30_000


class Looks:
    """Counts the calls to look at the in-sync replicas of a partition."""

    def __init__(self) -> None:
        self.count = 0

    def look_at(self, partition: Partition) -> None:
        self.count += 1


class Replicated:
    """One replica of a partition of three brokers, on this one."""

    def __init__(self, config: LogConfig | None = None, topic: str = "t") -> None:
        self.served = ServedLog(topic, leader_epoch=None, config=config)
        self.looks = Looks()
        self.failed_logs: list[TopicPartition] = []
        self.partition = Partition(
            self.served.log,
            HERE,
            lag_time_max_ms=LAG_MS,
            in_sync_observer=self.looks,
            on_log_failed=self.failed_logs.append,
        )
        self.served.partition = self.partition
        self.lifecycle: BrokerLifecycle = one_of(*ALL)
        self.version = -1
        self.now_ms = 0

    def be(self, leader: NodeId, epoch: int, *in_sync: NodeId) -> None:
        """The tree says who leads and who is in sync."""
        self.version += 1
        node = replicated(leader, epoch, self.version, in_sync or ALL, ALL)
        self.partition.on_state(node, self.lifecycle, self.now_ms)

    def fetch(
        self,
        node_id: NodeId,
        offset: int,
        last_epoch: int = 1,
        *,
        epoch: int = 1,
        broker_epoch: int | None = None,
        log_start: int = 0,
    ) -> PartitionRead:
        """A follower fetches from the leader here."""
        reader = ReplicaReader(node_id, 10 * node_id if broker_epoch is None else broker_epoch, self.now_ms)
        return self.partition.read_as_replica(
            reader, epoch, offset, last_epoch, MANY_BYTES, whole_first_batch=True, follower_log_start=log_start
        )

    def consume(self, offset: int, *, epoch: int = -1, may_follow: bool = True) -> PartitionRead:
        """A consumer fetches."""
        return self.partition.read(epoch, offset, -1, MANY_BYTES, whole_first_batch=True, may_follow=may_follow)

    def preferred(self, offset: int, *nearby: NodeId, epoch: int = 1) -> int | None:
        """Where the leader here sends a consumer; None: nowhere."""
        read = self.partition.read_elsewhere(nearby, epoch, offset)
        if read is None:
            return None
        assert (read.error_code, read.run) == (0, None)
        return read.preferred_replica

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.served.append(acks=ACKS_LEADER)
        self.served.become_stable()


def leader(config: LogConfig | None = None) -> Replicated:
    """Leads in epoch 1, and has one record."""
    replicated_here = Replicated(config)
    replicated_here.be(HERE, 1)
    replicated_here.add()
    return replicated_here


def records_of(leading: Replicated, offset: int = 0) -> memoryview:
    run = leading.fetch(ELSEWHERE, offset, 1 if offset else -1).run
    assert run is not None
    return memoryview(run.file.read_at(run.position, run.length_bytes))


def test_high_watermark_follows_the_slowest_replica_in_sync() -> None:
    here = leader()
    assert here.partition.high_watermark == 0
    here.fetch(ELSEWHERE, 1)
    assert here.partition.high_watermark == 0
    here.fetch(THIRD, 1)
    assert here.partition.high_watermark == 1
    here.be(HERE, 1, HERE, ELSEWHERE)
    here.add()
    here.fetch(ELSEWHERE, 2)
    assert here.partition.high_watermark == 2, "the third one is not in sync any more"


def test_produce_for_all_replicas_is_released_by_the_last_fetch_that_it_needs() -> None:
    here, waiting, reader = leader(), Produce(), Fetch()
    here.partition.waiting.park_fetch(reader)
    produce(here.served, waiting, 0)
    here.served.become_stable()
    here.fetch(ELSEWHERE, 2)
    assert (waiting.outcomes, reader.woken_count) == ({}, 0)
    here.fetch(THIRD, 2)
    assert (waiting.outcomes, reader.woken_count) == ({0: 0}, 1)


def test_read_of_a_replica_goes_to_the_end_of_the_log_and_a_consumers_to_the_high_watermark() -> None:
    here = leader()
    here.served.append(acks=ACKS_LEADER)
    read = here.fetch(ELSEWHERE, 0, -1)
    assert read.run is not None
    assert read.run.length_bytes == here.partition.size_bytes, "also what is not stable here yet"
    assert (read.error_code, read.high_watermark, read.log_start_offset) == (0, 0, 0)
    assert here.partition.read(1, 0, -1, MANY_BYTES, whole_first_batch=True).run is None


def test_fetch_of_a_replica_is_woken_by_an_append_and_told_of_the_high_watermark() -> None:
    here, fetch = leader(), Fetch()
    here.partition.waiting.park_fetch(fetch, WakeOn.APPEND)
    here.served.append(acks=ACKS_LEADER)
    assert (fetch.woken_count, fetch.watermarks_count) == (1, 0)
    here.served.become_stable()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 2)
    assert (fetch.woken_count, fetch.watermarks_count) == (1, 1)


def test_replica_with_another_history_is_told_where_it_leaves_ours_and_counts_for_nothing() -> None:
    here = leader()
    here.be(HERE, 4)
    here.add()
    read = here.fetch(ELSEWHERE, 2, 3, epoch=4)
    assert (read.error_code, read.diverging, read.run) == (0, (1, 1), None)
    here.fetch(THIRD, 2, 4, epoch=4)
    assert here.partition.high_watermark == 0


@pytest.mark.parametrize(
    ("epoch", "broker_epoch", "code"),
    [
        (0, 20, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 20, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 19, ErrorCode.STALE_BROKER_EPOCH),
        (1, 21, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_replica_of_another_epoch_or_life_counts_for_nothing(epoch: int, broker_epoch: int, code: ErrorCode) -> None:
    here = leader()
    here.fetch(THIRD, 1)
    read = here.fetch(ELSEWHERE, 1, epoch=epoch, broker_epoch=broker_epoch)
    assert (read.error_code, read.run) == (code, None)
    assert here.partition.high_watermark == 0


def test_replica_outside_of_the_log_is_told_where_it_ends_or_starts() -> None:
    here = leader()
    read = here.fetch(ELSEWHERE, 5)
    assert read.diverging == (1, 1)
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.partition.delete_records_before(1)
    read = here.fetch(ELSEWHERE, 0, -1)
    assert (read.error_code, read.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


def test_request_that_reads_again_tells_nothing_of_the_replica() -> None:
    here = leader()
    here.fetch(THIRD, 1)
    reader = ReplicaReader(ELSEWHERE, 20, 0)
    reader.count()
    read = here.partition.read_as_replica(reader, 1, 1, 1, MANY_BYTES, whole_first_batch=True)
    assert (read.error_code, here.partition.high_watermark) == (0, 0)
    here.be(ELSEWHERE, 2)
    read = here.partition.read_as_replica(reader, 1, 1, 1, MANY_BYTES, whole_first_batch=True)
    assert read.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_produces_are_refused_after_their_append_when_too_few_replicas_stay_in_sync() -> None:
    here, waiting = leader(LogConfig(min_insync_replicas=2)), Produce()
    produce(here.served, waiting, 0)
    produce(here.served, waiting, 1, ACKS_LEADER)
    here.be(HERE, 1, HERE)
    assert waiting.outcomes == {0: AFTER_APPEND}
    here.served.become_stable()
    assert waiting.outcomes == {0: AFTER_APPEND, 1: 0}
    assert here.partition.high_watermark == 0, "it stays below min.insync.replicas"
    with pytest.raises(NotEnoughReplicas):
        here.served.append()
    here.be(HERE, 1, HERE, ELSEWHERE)
    here.fetch(ELSEWHERE, 3)
    assert here.partition.high_watermark == 3
    here.served.append()


def test_produces_fail_when_another_broker_is_elected() -> None:
    here, waiting, reader = leader(), Produce(), Fetch()
    here.partition.waiting.park_fetch(reader)
    for slot, acks in enumerate((ACKS_ALL, ACKS_LEADER)):
        produce(here.served, waiting, slot, acks)
    here.be(ELSEWHERE, 2)
    assert waiting.outcomes == {0: NOT_LEADER, 1: NOT_LEADER}
    assert reader.woken_count == 1
    assert (here.partition.role, here.partition.leader_id) == (Role.FOLLOWER, ELSEWHERE)


def test_leader_that_is_elected_anew_keeps_its_produces() -> None:
    here, waiting = leader(), Produce()
    produce(here.served, waiting, 0)
    here.be(HERE, 2)
    here.served.become_stable()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 2, 1, epoch=2)
    assert waiting.outcomes == {0: 0}


def test_change_of_the_in_sync_replicas_is_proposed_where_a_replica_may_join_and_counts_at_once() -> None:
    here = leader()
    here.be(HERE, 1, HERE)
    assert here.partition.high_watermark == 1
    before = here.looks.count
    here.fetch(ELSEWHERE, 1)
    assert here.looks.count == before + 1
    change = here.partition.propose(here.now_ms)
    assert change is not None
    assert change.state.in_sync_nodes() == (HERE, ELSEWHERE)
    assert change.expected_version == here.version
    here.add()
    assert here.partition.high_watermark == 1, "it may be in sync already"
    here.fetch(ELSEWHERE, 2)
    assert here.partition.high_watermark == 2
    here.partition.on_outcome(change, ChangeResult.APPLIED, here.version + 1, here.now_ms)
    assert here.partition.in_sync_count == 2
    assert here.partition.propose(here.now_ms) is None


def test_state_that_is_older_than_this_brokers_own_change_is_not_taken_back() -> None:
    here = leader()
    here.be(HERE, 1, HERE)
    here.fetch(ELSEWHERE, 1)
    change = here.partition.propose(here.now_ms)
    assert change is not None
    here.partition.on_outcome(change, ChangeResult.APPLIED, here.version + 1, here.now_ms)
    here.partition.on_state(replicated(HERE, 1, here.version, (HERE,), ALL), here.lifecycle, here.now_ms)
    assert here.partition.in_sync_count == 2
    here.lifecycle.unregistered()
    here.partition.on_state(replicated(HERE, 1, here.version, (HERE,), ALL), here.lifecycle, here.now_ms)
    assert here.partition.role is Role.FOLLOWER, "also while the view is behind"


def test_lower_minimum_is_looked_at_also_where_only_the_leader_is_in_sync() -> None:
    here = Replicated(LogConfig(min_insync_replicas=2))
    here.be(HERE, 1, HERE)
    count = here.looks.count
    here.partition.update_config(LogConfig(min_insync_replicas=1), 0)
    assert here.looks.count == count + 1
    here.be(ELSEWHERE, 2, ELSEWHERE)
    count = here.looks.count
    here.partition.update_config(LogConfig(min_insync_replicas=2), 0)
    assert here.looks.count == count, "its leader's business"


def test_leader_whose_log_takes_nothing_any_more_says_so_since_others_can_lead() -> None:
    here = leader()
    here.served.disk.faults.fail("write", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        here.served.append()
    assert here.failed_logs == [], "there may be room again"
    here.served.disk.faults.fail("write")
    for _ in range(2):
        with pytest.raises(LogOffline):
            here.served.append()
    assert here.failed_logs == [TopicPartition("t", 0)] * 2


def test_former_leader_flushes_at_once_what_its_policy_would_let_wait() -> None:
    here = Replicated(LogConfig(flush_policy="interval", flush_ms=3_600_000))
    here.be(HERE, 1)
    here.served.append(acks=ACKS_LEADER)
    assert here.served.directory.scheduler.plan(0) is None
    here.be(ELSEWHERE, 2)
    assert here.partition.follower_log.next_fetch() is None
    here.served.end_flush(here.served.begin_flush())
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    assert fetch.fetch_offset == 1


def test_replica_that_lags_is_proposed_to_leave() -> None:
    here = leader()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.add()
    here.fetch(THIRD, 2)
    here.now_ms = LAG_MS + 1
    here.fetch(THIRD, 2)
    assert [(lag.node_id, lag.lag_records) for lag in here.partition.metrics.lags(here.now_ms)] == [
        (ELSEWHERE, 1),
        (THIRD, 0),
    ]
    change = here.partition.propose(here.now_ms)
    assert change is not None
    assert change.state.in_sync_nodes() == (HERE, THIRD)


def test_retention_removes_nothing_that_may_still_be_cut() -> None:
    here = leader(LogConfig(retention_bytes=1))
    for _ in range(2):
        here.served.roll()
        here.add()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    assert (here.partition.high_watermark, here.served.log.removable_end, here.served.log.stable_end) == (1, 1, 3)
    assert here.served.log.delete_old_segments(0) == 1
    assert here.partition.log_start_offset == 1


def test_lag_is_known_in_records_and_bytes() -> None:
    here = leader()
    here.served.roll()
    here.add(2)
    here.fetch(ELSEWHERE, 1)
    here.fetch(THIRD, 3)
    size_bytes = here.partition.size_bytes // 3
    lags = {
        lag.node_id: (lag.lag_records, here.partition.metrics.lag_bytes(lag)) for lag in here.partition.metrics.lags(0)
    }
    assert lags == {ELSEWHERE: (2, 2 * size_bytes), THIRD: (0, 0)}
    assert here.served.log.size_bytes_from(0) == 3 * size_bytes


def send(here: Replicated, sequence: int, producer_id: int = 5, acks: int = ACKS_LEADER) -> int:
    """A batch of one record of an idempotent producer; returns its base offset."""
    record = Record(0, 1, None, b"v")
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return here.served.append(batch, acks)[0]


def settled_leader() -> Replicated:
    """Leads for a while: no gap comes from before."""
    here = leader(LogConfig(min_insync_replicas=2))
    send(here, 0)
    with pytest.raises(NotLeader):
        send(here, 2)
    here.served.clock.advance(GAP_PATIENCE_MS)
    return here


def test_gap_without_a_refusal_before_it_is_an_error_of_its_producer() -> None:
    here = settled_leader()
    with pytest.raises(OutOfOrderSequence):
        send(here, 2)


def test_rest_of_a_pipeline_whose_head_was_refused_is_told_to_come_again() -> None:
    here = settled_leader()
    here.be(HERE, 1, HERE)
    with pytest.raises(NotEnoughReplicas):
        send(here, 1, acks=ACKS_ALL)
    here.be(HERE, 1)
    with pytest.raises(NotLeader):
        send(here, 2, acks=ACKS_ALL)
    assert [send(here, sequence, acks=ACKS_ALL) for sequence in (1, 2)] == [2, 3]
    here.served.clock.advance(GAP_PATIENCE_MS)
    with pytest.raises(OutOfOrderSequence):
        send(here, 4, acks=ACKS_ALL)


def test_refusal_begins_the_patience_anew() -> None:
    here = settled_leader()
    for _ in range(3):
        here.partition.on_refused(here.served.clock.now_ms())
        here.served.clock.advance(GAP_PATIENCE_MS - 1)
        with pytest.raises(NotLeader):
            send(here, 2)
    here.served.clock.advance(1)
    with pytest.raises(OutOfOrderSequence):
        send(here, 2)


def test_second_batch_of_a_new_producer_does_not_overtake_the_first_one_that_was_refused() -> None:
    here = settled_leader()
    here.partition.on_refused(here.served.clock.now_ms())
    with pytest.raises(NotLeader):
        send(here, 1, producer_id=6)
    assert [send(here, sequence, producer_id=6) for sequence in (0, 1)] == [2, 3]


def test_producer_that_was_forgotten_goes_on_when_nothing_was_refused() -> None:
    here = settled_leader()
    assert send(here, 4711, producer_id=6) == 2
    here.partition.on_refused(here.served.clock.now_ms())
    here.served.clock.advance(GAP_PATIENCE_MS)
    assert send(here, 4711, producer_id=7) == 3


def test_new_leader_takes_the_first_gap_for_a_pipeline_that_met_no_leader() -> None:
    there, here = leader(), follower()
    send(there, 0)
    there.served.become_stable()
    assert take(here, records_of(there)) is AppliedFetch.APPENDED
    here.served.become_stable()
    here.be(HERE, 2)
    here.served.clock.advance(GAP_PATIENCE_MS)
    for producer_id in (5, 6):
        with pytest.raises(NotLeader):
            send(here, 2, producer_id)
    assert [send(here, 1, 5), send(here, 0, 6)] == [2, 3]


def test_full_disk_that_refuses_the_head_of_a_pipeline_does_not_let_the_rest_overtake_it() -> None:
    here = settled_leader()
    here.served.disk.room_bytes = 0
    with pytest.raises(DiskFull):
        send(here, 0, producer_id=6)
    here.served.disk.room_bytes = None
    with pytest.raises(NotLeader):
        send(here, 1, producer_id=6)
    assert [send(here, sequence, producer_id=6) for sequence in (0, 1)] == [2, 3]


def follower(config: LogConfig | None = None) -> Replicated:
    here = Replicated(config)
    here.be(ELSEWHERE, 1)
    return here


def take(
    here: Replicated,
    records: memoryview = NO_RECORDS,
    *,
    code: int = 0,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> AppliedFetch | FollowerStep:
    """The follower here takes an answer to its present fetch."""
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    answer = fetched(records, code=code, high_watermark=high_watermark, log_start=log_start, diverging=diverging)
    return here.partition.follower_log.apply_fetched(fetch.request_id, answer, 0)


def cut(
    here: Replicated,
    *,
    code: int = 0,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> None:
    """The follower here cuts its log as an answer to its present fetch requires."""
    step = take(here, code=code, high_watermark=high_watermark, log_start=log_start, diverging=diverging)
    assert isinstance(step, FollowerStep)
    run_inline(here.partition.follower_log.cut(step, INLINE))


def test_follower_takes_the_leaders_batches_as_they_are_and_fetches_on_when_they_are_stable() -> None:
    there, here = leader(), follower()
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    assert fetch[1:] == (ELSEWHERE, 1, 0, -1)
    assert take(here, records_of(there), high_watermark=1) is AppliedFetch.APPENDED
    assert here.partition.follower_log.next_fetch() is None, "what is not flushed must not be reported"
    assert here.partition.high_watermark == 0
    here.served.become_stable()
    assert here.partition.high_watermark == 1
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    assert fetch[1:] == (ELSEWHERE, 1, 1, 1)
    assert here.served.batches == there.served.batches


def test_follower_refuses_clients() -> None:
    here = follower()
    assert here.partition.leadership_error(-1) == NOT_LEADER
    assert here.partition.read(-1, 0, -1, MANY_BYTES, whole_first_batch=True).error_code == NOT_LEADER
    read = here.fetch(THIRD, 0, -1)
    assert read.error_code == NOT_LEADER


def test_follower_learns_the_high_watermark_without_records() -> None:
    there, here = leader(), follower()
    take(here, records_of(there))
    here.served.become_stable()
    assert take(here, high_watermark=1) is AppliedFetch.NOTHING
    assert here.partition.high_watermark == 1


def test_follower_cuts_its_log_where_the_histories_part() -> None:
    here = leader()
    here.add(2)
    here.be(ELSEWHERE, 2)
    cut(here, diverging=(1, 1))
    assert here.partition.log_end_offset == 1
    here.served.become_stable()
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    assert fetch.fetch_offset == 1


def test_follower_that_cuts_its_log_deletes_nothing_that_it_does_not_know_to_be_committed() -> None:
    here = leader()
    here.add(3)
    here.be(ELSEWHERE, 2)
    cut(here, diverging=(1, 3), log_start=2)
    assert here.partition.log_end_offset == 3
    assert here.partition.log_start_offset <= here.partition.high_watermark
    here.served.become_stable()
    take(here, high_watermark=3, log_start=2)
    assert (here.partition.log_start_offset, here.partition.high_watermark) == (2, 3)


def test_follower_that_cuts_committed_records_logs_an_error_and_keeps_them(caplog: pytest.LogCaptureFixture) -> None:
    there, here = leader(), follower()
    there.add(2)
    take(here, records_of(there))
    here.served.become_stable()
    take(here, high_watermark=3)
    assert here.partition.high_watermark == 3
    here.be(ELSEWHERE, 2)
    cut(here, diverging=(1, 1))
    assert (here.partition.log_end_offset, here.partition.high_watermark) == (1, 1)
    (error,) = (record for record in caplog.records if record.getMessage() == "log.cut_below_watermark")
    assert error.levelno == logging.ERROR
    expected = {"to_offset": 1, "high_watermark": 3, "log_end_offset": 3, "leader": ELSEWHERE}
    assert expected.items() <= vars(error)["ottla_facts"].items()
    (kept,) = (record for record in caplog.records if record.getMessage() == "log.cut_is_kept")
    assert vars(kept)["ottla_facts"]["path"].endswith(".1-3.e1-cut")


def test_follower_that_cuts_what_was_never_committed_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    here = leader()
    here.add(2)
    here.be(ELSEWHERE, 2)
    cut(here, diverging=(1, 1))
    assert here.partition.log_end_offset == 1
    assert not [record for record in caplog.records if "cut" in record.getMessage()]


def follower_of_a_part(*, high_watermark: int, log_end: int) -> Replicated:
    """Its log begins at offset 2."""
    there, here = leader(), follower()
    there.add(log_end - 1)
    take(here, records_of(there))
    here.served.become_stable()
    take(here, high_watermark=high_watermark, log_start=2)
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (2, log_end)
    assert here.partition.high_watermark == high_watermark
    here.be(ELSEWHERE, 2)
    return here


@pytest.mark.parametrize(("high_watermark", "leader_start"), [(4, 6), (6, 4), (5, 9), (2, 0)])
def test_follower_whose_whole_log_the_leader_lacks_logs_an_error_and_keeps_all_of_it(
    high_watermark: int, leader_start: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The histories part below the log's start; the leader's log may begin anywhere."""
    here = follower_of_a_part(high_watermark=high_watermark, log_end=7)
    cut(here, diverging=(0, 1), log_start=leader_start)
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (leader_start, leader_start)
    (error,) = (record for record in caplog.records if record.getMessage() == "log.cut_below_watermark")
    expected = {"to_offset": 0, "high_watermark": high_watermark, "log_end_offset": 7}
    assert expected.items() <= vars(error)["ottla_facts"].items()
    (kept,) = (record for record in caplog.records if record.getMessage() == "log.cut_is_kept")
    assert vars(kept)["ottla_facts"]["path"].endswith(".2-7.e1-cut")


@pytest.mark.parametrize(("code", "leader_start"), [(ErrorCode.OFFSET_OUT_OF_RANGE, 9), (ErrorCode.NONE, 7)])
def test_follower_begins_where_retention_left_the_leaders_log_without_an_error(
    code: ErrorCode, leader_start: int, caplog: pytest.LogCaptureFixture
) -> None:
    here = follower_of_a_part(high_watermark=6, log_end=7)
    cut(here, code=code, log_start=leader_start)
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (leader_start, leader_start)
    assert not [record for record in caplog.records if "cut" in record.getMessage()]


def test_empty_follower_that_begins_anew_below_its_end_logs_an_error_and_keeps_no_empty_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = follower_of_a_part(high_watermark=6, log_end=7)
    cut(here, code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=9)
    here.be(THIRD, 3)
    cut(here, diverging=(3, 4))
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (4, 4)
    assert [record.getMessage() for record in caplog.records if "cut" in record.getMessage()] == [
        "log.cut_below_watermark"
    ]


def test_late_answer_changes_nothing() -> None:
    there, here = leader(), follower()
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    answer = fetched(records_of(there), high_watermark=1)
    here.be(THIRD, 2)
    assert here.partition.follower_log.apply_fetched(fetch.request_id, answer, 0) is AppliedFetch.NOTHING
    assert here.partition.log_end_offset == 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, AppliedFetch.STALE),
        (ErrorCode.FENCED_LEADER_EPOCH, AppliedFetch.STALE),
        (ErrorCode.UNKNOWN_TOPIC_ID, AppliedFetch.STALE),
        (ErrorCode.KAFKA_STORAGE_ERROR, AppliedFetch.RETRY),
    ],
)
def test_error_of_the_leader_is_waited_out(code: ErrorCode, expected: AppliedFetch) -> None:
    assert take(follower(), code=code) is expected


def test_damaged_records_are_refused_and_fetched_again() -> None:
    there, here = leader(), follower()
    run = memoryview(bytearray(records_of(there)))
    run[-1] ^= 1
    assert take(here, run) is AppliedFetch.RETRY
    assert here.partition.log_end_offset == 0
    assert take(here, records_of(there)) is AppliedFetch.APPENDED


def test_follower_deletes_what_its_leader_deleted() -> None:
    there, here = leader(), follower()
    there.add(2)
    take(here, records_of(there))
    here.served.become_stable()
    assert take(here, high_watermark=3, log_start=2) is AppliedFetch.NOTHING
    assert here.partition.log_start_offset == 2


def test_follower_far_behind_the_leaders_log_start_begins_anew_there() -> None:
    here = leader()
    here.be(ELSEWHERE, 2)
    cut(here, code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=70)
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (70, 70)
    assert here.partition.high_watermark == 70
    here.served.become_stable()
    fetch = here.partition.follower_log.next_fetch()
    assert fetch is not None
    assert fetch[1:] == (ELSEWHERE, 2, 70, -1)


def test_former_leader_keeps_the_high_watermark_and_a_new_one_starts_from_it() -> None:
    here = leader()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.be(ELSEWHERE, 2)
    assert here.partition.high_watermark == 1
    here.be(HERE, 3)
    assert here.partition.high_watermark == 1
    assert here.partition.has_reached_epoch_start
    here.served.append(one_record(), ACKS_LEADER)
    here.be(ELSEWHERE, 4)
    here.be(HERE, 5)
    assert not here.partition.has_reached_epoch_start


def test_new_leader_shows_consumers_nothing_before_it_knows_what_its_predecessor_committed() -> None:
    here, reader = leader(), Fetch()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.add(2)
    here.be(ELSEWHERE, 2)
    here.be(HERE, 3)
    assert here.partition.high_watermark == 1, "its predecessor may have reported 3"
    for offset in (0, 1):
        read = here.consume(offset)
        assert (read.error_code, read.run, read.high_watermark) == (NOT_AVAILABLE, None, -1)
    assert not here.partition.ends_in_older_segment(0)
    here.partition.waiting.park_fetch(reader)
    here.fetch(ELSEWHERE, 3, epoch=3)
    assert here.preferred(0, ELSEWHERE, epoch=3) is None
    here.fetch(THIRD, 3, epoch=3)
    assert reader.woken_count == 1
    read = here.consume(0)
    assert (read.error_code, read.high_watermark) == (0, 3)
    assert read.run is not None


def test_new_leader_with_enough_replicas_in_sync_waits_until_they_have_fetched() -> None:
    here = restarted(HERE, ELSEWHERE)
    here.partition.end_withholding(here.now_ms + WITHHELD_READS_MAX_MS - 1)
    assert here.consume(0).error_code == NOT_AVAILABLE
    here.fetch(ELSEWHERE, 3, epoch=3)
    assert here.consume(0).high_watermark == 3


def test_new_leader_with_a_replica_in_sync_that_does_not_fetch_shows_what_it_knows_after_a_limit() -> None:
    here, reader = restarted(HERE, ELSEWHERE), Fetch()
    here.partition.waiting.park_fetch(reader)
    assert WITHHELD_READS_MAX_MS > EPOCH_START_WAIT_MS
    here.partition.end_withholding(here.now_ms + WITHHELD_READS_MAX_MS)
    assert reader.woken_count == 1
    read = here.consume(0)
    assert (read.error_code, read.high_watermark) == (0, 1)
    assert read.run is not None
    assert here.consume(2).error_code == NOT_AVAILABLE, "a reader above it is never sent a lower one"
    here.fetch(ELSEWHERE, 3, epoch=3)
    assert here.consume(2).high_watermark == 3


def test_new_leader_with_too_few_replicas_in_sync_soon_shows_what_it_knows() -> None:
    here, reader = restarted(HERE), Fetch()
    here.partition.waiting.park_fetch(reader)
    here.partition.end_withholding(EPOCH_START_WAIT_MS - 1)
    assert here.consume(0).error_code == NOT_AVAILABLE
    here.partition.end_withholding(EPOCH_START_WAIT_MS)
    assert reader.woken_count == 1
    read = here.consume(0)
    assert (read.error_code, read.high_watermark) == (0, 1)
    assert read.run is not None
    assert here.consume(2).error_code == NOT_AVAILABLE, "a reader above it is never sent a lower one"
    assert not here.partition.has_reached_epoch_start


def test_state_of_the_same_epoch_does_not_withhold_again() -> None:
    here = restarted(HERE)
    here.partition.end_withholding(EPOCH_START_WAIT_MS)
    here.be(HERE, 3, HERE)
    see(here, is_suspended=True)
    see(here, is_suspended=False)
    assert here.consume(0).error_code == 0


def test_leader_about_to_give_up_shows_consumers_nothing_until_the_outcome_is_known() -> None:
    here, reader = leader(), Fetch()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    assert here.consume(0).run is not None
    here.partition.withhold_reads(here.now_ms)
    assert here.consume(0).error_code == NOT_AVAILABLE, "the next leader may have committed more"
    here.partition.waiting.park_fetch(reader)
    here.partition.resume_reads()
    assert reader.woken_count == 1
    assert here.consume(0).run is not None
    here.partition.resume_reads()
    assert reader.woken_count == 1


def test_reads_are_withheld_for_a_limited_time_while_the_outcome_is_unknown() -> None:
    here = leader()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.partition.withhold_reads(here.now_ms)
    here.partition.end_withholding(here.now_ms + WITHHELD_READS_MAX_MS - 1)
    assert here.partition.withholds_reads
    here.partition.end_withholding(here.now_ms + WITHHELD_READS_MAX_MS)
    assert here.consume(0).run is not None


def test_former_leader_that_gave_up_refuses_consumers_as_a_follower() -> None:
    here = leader()
    here.partition.withhold_reads(here.now_ms)
    here.be(ELSEWHERE, 2)
    assert not here.partition.withholds_reads
    here.partition.withhold_reads(here.now_ms)
    assert not here.partition.withholds_reads


def test_follower_in_sync_serves_what_it_knows_whatever_it_withheld_as_leader() -> None:
    here = restarted(HERE, ELSEWHERE)
    here.be(ELSEWHERE, 4)
    assert not here.partition.withholds_reads
    assert here.consume(0).error_code == 0


def test_records_that_a_new_leader_has_not_flushed_are_flushed_soon() -> None:
    here = Replicated(LogConfig(flush_policy="interval", flush_ms=3_600_000))
    here.be(HERE, 1, HERE)
    here.served.append(acks=ACKS_LEADER)
    here.served.become_stable()
    assert here.partition.high_watermark == 0, "its flush is not due"
    here.be(HERE, 2, HERE)
    assert here.consume(0).error_code == NOT_AVAILABLE
    here.served.become_stable()
    assert here.consume(0).high_watermark == 1


def restarted(*in_sync: NodeId) -> Replicated:
    """Leads in epoch 3 with three records, of which it knows one to be committed; two replicas must be in sync."""
    here = leader(LogConfig(min_insync_replicas=2))
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.add(2)
    here.be(ELSEWHERE, 2)
    here.be(HERE, 3, *in_sync)
    return here


def test_groups_offsets_are_on_as_many_replicas_as_the_setting_asks_for() -> None:
    here = Replicated(LogConfig(min_insync_replicas=2), OFFSETS_TOPIC)
    here.be(HERE, 1, HERE)
    with pytest.raises(NotEnoughReplicas):
        here.served.append(acks=ACKS_ALL)
    here.be(HERE, 1, HERE, ELSEWHERE)
    here.served.append(acks=ACKS_ALL)


def test_groups_go_on_where_their_offsets_have_fewer_replicas_than_the_setting_asks_for() -> None:
    here = Replicated(LogConfig(min_insync_replicas=4), OFFSETS_TOPIC)
    here.be(HERE, 1)
    here.served.append(acks=ACKS_ALL)


def test_consumer_is_sent_to_the_nearest_follower_that_has_its_offset() -> None:
    here = leader()
    here.add()
    here.fetch(ELSEWHERE, 1)
    here.fetch(THIRD, 2)
    assert here.preferred(1, ELSEWHERE) == ELSEWHERE
    assert here.preferred(2, ELSEWHERE) is None, "it has not come so far"
    assert here.preferred(2, ELSEWHERE, THIRD) == THIRD
    assert here.preferred(1, ELSEWHERE, THIRD) == THIRD, "it has come further"
    assert here.preferred(1, NodeId(9)) is None


def test_consumer_is_not_sent_to_a_follower_that_deleted_its_offset() -> None:
    here = leader()
    here.add()
    here.fetch(ELSEWHERE, 2, log_start=1)
    assert (here.preferred(0, ELSEWHERE), here.preferred(1, ELSEWHERE)) == (None, ELSEWHERE)


def test_consumer_is_not_sent_away_for_an_offset_that_is_deleted_here() -> None:
    here = leader()
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 1)
    here.partition.delete_records_before(1)
    assert (here.preferred(0, ELSEWHERE), here.consume(0).error_code) == (None, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_consumer_is_not_sent_to_a_follower_that_is_gone_or_not_in_sync() -> None:
    here = leader()
    here.fetch(ELSEWHERE, 1)
    here.fetch(THIRD, 1)
    here.partition.on_follower_gone(ELSEWHERE, 10 * ELSEWHERE)
    assert here.preferred(1, ELSEWHERE) is None
    here.be(HERE, 1, HERE, ELSEWHERE)
    assert here.preferred(1, THIRD) is None
    here.fetch(ELSEWHERE, 1)
    assert here.preferred(1, ELSEWHERE) == ELSEWHERE, "it is back"


def test_consumer_of_another_leader_epoch_is_not_sent_away() -> None:
    here = leader()
    here.fetch(ELSEWHERE, 1)
    assert here.preferred(1, ELSEWHERE, epoch=2) is None
    assert here.consume(1, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    here.be(ELSEWHERE, 2)
    assert here.preferred(1, THIRD, epoch=2) is None, "it does not lead any more"


def follower_of_one_record() -> Replicated:
    """In sync; it has one record, of which it does not know yet that it is committed."""
    records = bytes(records_of(leader()))
    here = Replicated()
    here.be(ELSEWHERE, 1)
    take(here, memoryview(records))
    here.served.become_stable()
    return here


def test_follower_serves_consumers_below_its_own_high_watermark_and_wakes_them() -> None:
    here, waiting = follower_of_one_record(), Fetch()
    here.partition.waiting.park_fetch(waiting)
    read = here.consume(0)
    assert (read.error_code, read.high_watermark, read.run) == (0, 0, None)
    take(here, high_watermark=1)
    assert waiting.woken_count == 1
    read = here.consume(0)
    assert (read.error_code, read.high_watermark, read.run is None) == (0, 1, False)


def test_follower_refuses_consumers_who_know_leaders_only_and_those_of_another_epoch() -> None:
    here = follower_of_one_record()
    assert here.consume(0, may_follow=False).error_code == NOT_LEADER
    assert here.consume(0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert here.consume(0, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert here.consume(0, epoch=1).error_code == 0


def test_follower_tells_what_is_outside_of_its_log() -> None:
    here = follower_of_one_record()
    assert here.consume(1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "it is not committed yet: the consumer waits"
    assert here.consume(2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_follower_that_leaves_the_replicas_in_sync_sends_its_consumers_away() -> None:
    here, waiting = follower_of_one_record(), Fetch()
    here.partition.waiting.park_fetch(waiting)
    here.be(ELSEWHERE, 1, ELSEWHERE, THIRD)
    assert (waiting.woken_count, here.consume(0).error_code) == (1, NOT_LEADER)
    here.be(ELSEWHERE, 1)
    assert here.consume(0).error_code == 0
    here.lifecycle.unregistered()
    here.be(ELSEWHERE, 1)
    assert here.consume(0).error_code == NOT_LEADER, "its session has ended"


def see(here: Replicated, *, is_suspended: bool) -> bool:
    """The lease ended, or was extended: the state is the one that was seen last."""
    assert here.partition.node is not None
    here.lifecycle.is_suspended = is_suspended
    return here.partition.on_state(here.partition.node, here.lifecycle, here.now_ms)


def test_leader_releases_what_waits_when_its_lease_ends() -> None:
    here, reader, follower = leader(), Fetch(), Fetch()
    of_all, of_leader = Produce(), Produce()
    here.partition.waiting.park_fetch(reader)
    here.partition.waiting.park_fetch(follower, WakeOn.APPEND)
    produce(here.served, of_all, 0)
    produce(here.served, of_leader, 0, ACKS_LEADER)
    woken_count = follower.woken_count
    assert see(here, is_suspended=True)
    assert of_all.outcomes == of_leader.outcomes == {0: NOT_LEADER}
    assert (reader.woken_count, follower.woken_count) == (1, woken_count + 1)


def test_leader_whose_lease_is_over_refuses_readers_and_writers() -> None:
    here = leader()
    see(here, is_suspended=True)
    assert here.consume(0).error_code == here.consume(7).error_code == NOT_LEADER, "also what is out of its range"
    assert here.partition.leadership_error(-1) == NOT_LEADER
    with pytest.raises(NotLeader):
        here.served.append(acks=ACKS_ALL)


def test_leader_whose_lease_is_extended_leads_on_in_its_epoch_with_what_it_knew() -> None:
    here = leader()
    here.fetch(ELSEWHERE, 1)
    here.fetch(THIRD, 1)
    assert here.partition.high_watermark == 1
    see(here, is_suspended=True)
    assert see(here, is_suspended=False)
    assert (here.partition.role, here.partition.leader_epoch) == (Role.LEADER, 1)
    assert (here.partition.high_watermark, here.partition.in_sync_count) == (1, 3)
    assert here.partition.has_reached_epoch_start
    assert here.consume(0).error_code == 0
    here.add()
    here.fetch(ELSEWHERE, 2)
    here.fetch(THIRD, 2)
    assert here.partition.high_watermark == 2


def test_leader_that_was_replaced_while_its_lease_was_over_follows() -> None:
    here = leader()
    see(here, is_suspended=True)
    here.be(ELSEWHERE, 2, ELSEWHERE, THIRD)
    see(here, is_suspended=False)
    assert here.partition.role is Role.FOLLOWER
    assert here.consume(0).error_code == NOT_LEADER


def test_leader_that_is_elected_while_its_lease_is_over_serves_when_that_is_extended() -> None:
    here = Replicated()
    here.lifecycle.is_suspended = True
    here.be(HERE, 1)
    assert here.consume(0).error_code == NOT_LEADER
    see(here, is_suspended=False)
    assert here.consume(0).error_code == 0


def test_follower_whose_lease_is_over_sends_consumers_back_to_the_leader() -> None:
    here, reader = Replicated(), Fetch()
    here.be(ELSEWHERE, 1)
    assert here.consume(0).error_code == 0
    here.partition.waiting.park_fetch(reader)
    see(here, is_suspended=True)
    assert here.consume(0).error_code == NOT_LEADER
    assert reader.woken_count == 1
    see(here, is_suspended=False)
    assert here.consume(0).error_code == 0


def test_what_is_produced_counts_once_through_an_end_of_the_lease() -> None:
    here = leader()
    see(here, is_suspended=True)
    see(here, is_suspended=False)
    here.add()
    assert here.partition.metrics.produced.records_count == 2
