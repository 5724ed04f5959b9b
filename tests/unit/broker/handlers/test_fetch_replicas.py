"""Fetch by replicas: who may fetch, what a fetch reports, when replicas are woken, and their sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.rack_aware_selector import RackAwareSelector
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle, LeaseWatch
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.tree import Lease
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState
from tests.unit.broker.handlers.test_fetch import SIZE_BYTES_MAX, Served, topic
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import ServedLog

ALL = (HERE, ELSEWHERE, NodeId(3))
EPOCH = 1
FOLLOWER = ReplicaState(ELSEWHERE, 10 * ELSEWHERE)


class Leading(Served):
    """A fetch handler of one of three brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 17
        self.lifecycle: BrokerLifecycle = one_of(*ALL)
        self.use(None)

    def use(self, lease: Lease | None) -> None:
        lifecycle = BrokerLifecycle(HERE, lease)
        lifecycle.broker_epoch, lifecycle.live = self.lifecycle.broker_epoch, self.lifecycle.live
        self.handler = FetchHandler(
            self.table, self.ready, self.deadlines, SIZE_BYTES_MAX, self.sessions, self.clock, None, lifecycle
        )

    def lead(self, index: int = 0) -> ServedLog:
        """Lead a partition whose replicas are all brokers; the follower and this one are in sync."""
        log = ServedLog("t", index, leader_epoch=None)
        node = replicated(HERE, EPOCH, 0, (HERE, ELSEWHERE), ALL)._replace(partition_index=index)
        log.partition.on_state(node, self.lifecycle, 0)
        self.table.add(log.partition)
        return log

    def lead_again(self, log: ServedLog) -> None:
        """Be elected in the next leader epoch."""
        node = log.partition.node
        assert node is not None
        state = node.state._replace(leader_epoch=LeaderEpoch(EPOCH + 1))
        log.partition.on_state(node._replace(state=state, state_version=1), self.lifecycle, 0)

    def follow(self, *wanted: FetchPartition, replica: ReplicaState = FOLLOWER, **options: int) -> None:
        fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1_000_000, **options}
        topics = [topic("t", *wanted)] if wanted else []
        self.send(FetchRequest(topics=topics, replica_state=replica, **fields))  # type: ignore[arg-type]

    def codes(self) -> list[int]:
        return [found.error_code for found in self.partitions()]


def at(offset: int, index: int = 0, *, last_epoch: int | None = None, epoch: int = EPOCH) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=(EPOCH if offset else -1) if last_epoch is None else last_epoch,
        log_start_offset=0,
        partition_max_bytes=1_000_000,
    )


@pytest.fixture
def served() -> Iterator[Leading]:
    made = Leading()
    yield made
    made.connection.close("the test ended")
    made.client.close()


def only(parts: list[PartitionData]) -> PartitionData:
    (part,) = parts
    return part


def test_replica_reads_up_to_the_end_of_the_log_and_its_next_fetch_moves_the_high_watermark(served: Leading) -> None:
    log = served.lead()
    size = log.add()
    served.follow(at(0))
    part = only(served.partitions())
    assert (len(part.records or b""), part.high_watermark, log.partition.high_watermark) == (size, 0, 0)
    served.follow(at(1))
    assert served.answer() is None
    assert log.partition.high_watermark == 1


def test_replica_is_woken_by_an_append_before_anything_is_stable(served: Leading) -> None:
    log = served.lead()
    served.follow(at(0))
    assert served.answer() is None
    size = log.add(is_stable=False)
    assert [len(part.records or b"") for part in served.partitions()] == [size]


def test_consumer_is_woken_by_the_fetch_that_moves_the_high_watermark(served: Leading) -> None:
    log = served.lead()
    size = log.add()
    reader, connection = served.connect()
    served.ask(FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000_000), max_wait_ms=2**31 - 1)
    assert served.answer() is None
    served.client, follower = reader, served.client
    served.follow(at(1))
    served.client = follower
    assert served.sizes() == [size]
    connection.close("the test ended")
    reader.close()


def test_consumer_of_a_new_leader_waits_until_the_followers_have_fetched(served: Leading) -> None:
    log = served.lead()
    size = log.add()
    served.lead_again(log)
    reader, connection = served.connect()
    served.ask(FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000_000), max_wait_ms=500)
    served.loop.advance(0.4)
    assert served.answer() is None
    served.client, follower = reader, served.client
    served.follow(at(1, epoch=EPOCH + 1))
    served.client = follower
    part = only(served.partitions())
    assert (part.error_code, part.high_watermark, len(part.records or b"")) == (0, 1, size)
    connection.close("the test ended")
    reader.close()


def test_consumer_of_a_new_leader_is_never_sent_a_high_watermark_that_may_be_lower_than_before(
    served: Leading,
) -> None:
    log = served.lead()
    log.add()
    served.lead_again(log)
    served.ask(FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000_000), max_wait_ms=500)
    served.loop.advance(0.51)
    part = only(served.partitions())
    assert (part.error_code, part.high_watermark) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


def test_partition_of_a_new_leader_does_not_delay_the_records_of_others(served: Leading) -> None:
    log, other = served.lead(0), served.lead(1)
    log.add()
    size = other.add()
    served.lead_again(log)
    reader, connection = served.connect()
    served.client, follower = reader, served.client
    served.follow(at(1, index=1))
    served.client = follower
    served.ask(
        *(FetchPartition(index, fetch_offset=0, partition_max_bytes=1_000_000) for index in (0, 1)), max_wait_ms=500
    )
    found = [(part.error_code, len(part.records or b"")) for part in served.partitions()]
    assert found == [(ErrorCode.OFFSET_NOT_AVAILABLE, 0), (0, size)]
    connection.close("the test ended")
    reader.close()


@pytest.mark.parametrize(
    ("replica", "code"),
    [
        (ReplicaState(9, 90), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ReplicaState(ELSEWHERE, 19), ErrorCode.STALE_BROKER_EPOCH),
        (ReplicaState(ELSEWHERE, 21), ErrorCode.STALE_BROKER_EPOCH),
        (ReplicaState(ELSEWHERE, -1), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
    ids=["not-registered", "former-life", "later-life", "no-epoch"],
)
def test_only_a_live_broker_in_its_present_life_may_fetch_as_a_replica(
    served: Leading, replica: ReplicaState, code: ErrorCode
) -> None:
    log = served.lead()
    log.add()
    served.follow(at(1), replica=replica)
    part = only(served.partitions())
    assert (part.error_code, part.records, log.partition.high_watermark) == (code, b"", 0)


def test_replica_that_names_no_epoch_because_its_version_has_none_is_refused(served: Leading) -> None:
    served.lead().add()
    served.version = 14
    served.send(FetchRequest(replica_id=ELSEWHERE, topics=[topic("t", at(0))]))
    assert served.codes() == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_broker_whose_lease_is_over_takes_no_progress(served: Leading) -> None:
    log = served.lead()
    log.add()
    served.use(Lease(served.clock.monotonic_ms()))
    served.follow(at(1))
    assert served.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert log.partition.high_watermark == 0
    served.use(Lease(served.clock.monotonic_ms() + 1))
    served.follow(at(1))
    assert log.partition.high_watermark == 1


def test_replica_with_another_history_is_told_at_once(served: Leading) -> None:
    log = served.lead()
    log.add()
    served.follow(at(5))
    part = only(served.partitions())
    assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, EPOCH, 1)


def test_session_of_a_replica_names_what_changed_and_wakes_on_appends(served: Leading) -> None:
    logs = [served.lead(index) for index in (0, 1)]
    served.follow(at(0), at(0, 1), max_wait_ms=0, session_epoch=0)
    opened = served.answer()
    assert opened is not None
    assert opened.session_id == 100
    served.follow(session_id=100, session_epoch=1)
    assert served.answer() is None
    size = logs[1].add(is_stable=False)
    part = only(served.partitions())
    assert (part.partition_index, len(part.records or b"")) == (1, size)
    logs[1].become_stable()
    served.follow(at(1, 1), session_id=100, session_epoch=2)
    assert logs[1].partition.high_watermark == 1
    logs[0].add(is_stable=False)
    assert {part.partition_index: part.high_watermark for part in served.partitions()} == {0: 0, 1: 1}


def test_session_tells_a_replica_of_a_high_watermark_that_another_one_moved(served: Leading) -> None:
    log = served.lead()
    log.partition.on_state(replicated(HERE, EPOCH, 1, ALL, ALL), served.lifecycle, 0)
    log.add()
    served.follow(at(1), max_wait_ms=0, session_epoch=0)
    assert only(served.partitions()).high_watermark == 0
    served.follow(at(1), max_wait_ms=0, session_epoch=-1, replica=ReplicaState(3, 30))
    assert only(served.partitions()).high_watermark == 1
    served.follow(max_wait_ms=0, session_id=100, session_epoch=1)
    assert only(served.partitions()).high_watermark == 1
    served.follow(max_wait_ms=0, session_id=100, session_epoch=2)
    assert not served.partitions()


def test_session_tells_a_replica_of_deleted_records_until_it_has_deleted_them(served: Leading) -> None:
    log = served.lead()
    log.add()
    served.follow(at(1), max_wait_ms=0, session_epoch=0)
    assert served.answer() is not None
    served.follow(session_id=100, session_epoch=1)
    assert served.answer() is None
    log.partition.delete_records_before(1)
    log.partition.waiting.wake_fetches()
    assert only(served.partitions()).log_start_offset == 1
    served.follow(max_wait_ms=0, session_id=100, session_epoch=2)
    assert not served.partitions(), "the follower knows it"
    served.follow(at(1), session_id=100, session_epoch=3)
    assert only(served.partitions()).log_start_offset == 1
    deleted = at(1)
    deleted.log_start_offset = 1
    served.follow(deleted, session_id=100, session_epoch=4)
    assert served.answer() is None


@pytest.mark.parametrize("other", [ReplicaState(3, 30), ReplicaState(ELSEWHERE, 21), ReplicaState()])
def test_session_of_a_replica_is_continued_by_nobody_else(served: Leading, other: ReplicaState) -> None:
    log = served.lead()
    log.add()
    served.follow(at(0), session_epoch=0)
    assert served.answer() is not None
    served.follow(at(1), session_id=100, session_epoch=1, replica=other)
    answer = served.answer()
    assert answer is not None
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert log.partition.high_watermark == 0


def test_session_of_a_consumer_is_not_continued_by_a_replica(served: Leading) -> None:
    served.lead().add()
    served.ask(FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000_000), session_epoch=0, max_wait_ms=0)
    assert served.answer() is not None
    served.follow(at(1), session_id=100, session_epoch=1)
    answer = served.answer()
    assert answer is not None
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partition_that_gets_another_leader_is_told_in_the_session(served: Leading) -> None:
    log = served.lead()
    served.follow(at(0), max_wait_ms=0, session_epoch=0)
    assert served.answer() is not None
    served.follow(session_id=100, session_epoch=1)
    assert served.answer() is None
    log.partition.on_state(replicated(ELSEWHERE, EPOCH + 1, 1), served.lifecycle, 0)
    assert served.codes() == [ErrorCode.FENCED_LEADER_EPOCH]


RACK = "west"


class Near(RackAwareSelector):
    """The follower is near consumers in the rack."""

    def __init__(self) -> None:
        address = BrokerAddress(ELSEWHERE, "two.example", 9092, RACK)
        super().__init__(HERE, lambda: BrokersView(1, {}), lambda _: [address])


@pytest.fixture
def selecting(served: Leading) -> Leading:
    """With a selector."""
    served.sessions = FetchSessionCache(10, lambda: next(served.session_ids), tells_watermarks=True)
    served.handler = FetchHandler(
        served.table,
        served.ready,
        served.deadlines,
        SIZE_BYTES_MAX,
        served.sessions,
        served.clock,
        None,
        served.lifecycle,
        selector=Near(),
    )
    return served


def consume(served: Leading, *wanted: FetchPartition, rack: str = RACK, **options: int) -> None:
    fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1_000_000, **options}
    served.send(FetchRequest(topics=[topic("t", *wanted)] if wanted else [], rack_id=rack, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [11, 12, 17])
def test_consumer_is_told_at_once_to_read_from_the_follower_in_its_rack(selecting: Leading, version: int) -> None:
    log = selecting.lead()
    log.add()
    selecting.follow(at(1))
    assert selecting.answer() is None
    reader, connection = selecting.connect()
    selecting.client, follower = reader, selecting.client
    selecting.version = version
    for offset in (0, 1):
        consume(selecting, at(offset, last_epoch=-1))
        part = only(selecting.partitions())
        assert (part.preferred_read_replica, part.error_code, len(part.records or b"")) == (ELSEWHERE, 0, 0)
        assert (part.high_watermark, part.log_start_offset) == (1, 0)
    connection.close("the test ended")
    reader.close()
    selecting.client = follower


@pytest.mark.parametrize("rack", ["", "east"])
def test_consumer_without_a_follower_in_its_rack_reads_from_the_leader(selecting: Leading, rack: str) -> None:
    log = selecting.lead()
    size = log.add()
    selecting.follow(at(1), max_wait_ms=0)
    selecting.answer()
    consume(selecting, at(0), rack=rack)
    part = only(selecting.partitions())
    assert (part.preferred_read_replica, len(part.records or b"")) == (-1, size)


def test_consumer_without_a_selector_reads_from_the_leader(served: Leading) -> None:
    log = served.lead()
    size = log.add()
    served.follow(at(1), max_wait_ms=0)
    served.answer()
    consume(served, at(0))
    part = only(served.partitions())
    assert (part.preferred_read_replica, len(part.records or b"")) == (-1, size)


def test_consumer_is_told_of_the_follower_in_its_session_when_it_has_come_far_enough(selecting: Leading) -> None:
    log = selecting.lead()
    size = log.add()
    consume(selecting, at(0), session_epoch=0, max_wait_ms=0)
    opened = selecting.answer()
    assert opened is not None
    assert opened.responses[0].partitions[0].preferred_read_replica == -1, "the follower has not fetched yet"
    session_id = opened.session_id
    selecting.follow(at(1), max_wait_ms=0)
    selecting.answer()
    for epoch in (1, 2):
        consume(selecting, session_id=session_id, session_epoch=epoch, max_wait_ms=0)
        assert only(selecting.partitions()).preferred_read_replica == ELSEWHERE, "until the consumer forgets it"
    consume(selecting, session_id=session_id, session_epoch=3, max_wait_ms=0, rack="")
    assert [len(part.records or b"") for part in selecting.partitions()] == [size]


def test_follower_that_waits_is_told_of_the_high_watermark_at_once_since_consumers_wait_there(
    selecting: Leading,
) -> None:
    log = selecting.lead()
    log.add()
    selecting.follow(at(1), session_epoch=0, max_wait_ms=0)
    opened = selecting.answer()
    assert opened is not None
    selecting.follow(session_id=opened.session_id, session_epoch=1)
    assert selecting.answer() is None
    log.partition.on_state(replicated(HERE, EPOCH, 1, (HERE,), ALL), selecting.lifecycle, 0)
    assert log.add(is_stable=False), "the follower gets it, and the high watermark is as it was"
    assert only(selecting.partitions()).high_watermark == 1
    selecting.follow(at(2), session_id=opened.session_id, session_epoch=2)
    assert selecting.answer() is None
    log.become_stable()
    part = only(selecting.partitions())
    assert (part.high_watermark, len(part.records or b"")) == (2, 0)


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, 0), (17, 0)])
def test_follower_serves_consumers_that_know_of_followers(served: Leading, version: int, code: int) -> None:
    log = ServedLog("t", leader_epoch=None)
    log.partition.on_state(replicated(ELSEWHERE, EPOCH, 0, (HERE, ELSEWHERE), ALL), served.lifecycle, 0)
    served.table.add(log.partition)
    served.version = version
    served.send(FetchRequest(topics=[topic("t", at(0))], max_wait_ms=0, min_bytes=1, max_bytes=1_000_000))
    assert served.codes() == [code]


class Leased(Leading):
    """With a lease whose end suspends the partition, as the broker has it."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = Lease(self.clock.boottime_ms() + 1_000)
        self.watch = LeaseWatch(
            self.lifecycle,
            self.lease,
            self.clock,
            self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
            self.suspend,
        )
        self.handler = FetchHandler(
            self.table,
            self.ready,
            self.deadlines,
            SIZE_BYTES_MAX,
            self.sessions,
            self.clock,
            None,
            self.lifecycle,
            lease_watch=self.watch,
        )

    def suspend(self) -> None:
        for partition in self.table:
            assert partition.node is not None
            partition.on_state(partition.node, self.lifecycle, 0)


@pytest.fixture
def leased() -> Iterator[Leased]:
    made = Leased()
    yield made
    made.connection.close("the test ended")
    made.client.close()


def test_consumer_is_refused_by_a_leader_that_was_paused_until_its_lease_was_over(leased: Leased) -> None:
    leased.lead()
    leased.clock.advance(1_000)
    leased.send(FetchRequest(topics=[topic("t", at(0))], max_wait_ms=500, min_bytes=1, max_bytes=1_000))
    assert leased.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_waiting_fetch_that_expires_after_a_pause_is_refused_and_not_answered_empty(leased: Leased) -> None:
    leased.lead()
    leased.send(FetchRequest(topics=[topic("t", at(0))], max_wait_ms=500, min_bytes=1, max_bytes=1_000))
    assert leased.answer() is None
    leased.clock.advance(1_000)
    leased.loop.advance(0.5)
    assert leased.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
