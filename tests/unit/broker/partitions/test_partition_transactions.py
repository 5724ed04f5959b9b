"""Transactions on a partition: what its leader appends, what readers of committed records see, after which moves."""

from __future__ import annotations

import pytest

from ottla.broker.partitions.partition import EPOCH_START_WAIT_MS, NO_WAIT, NotEnoughReplicas, NotLeader, Partition
from ottla.broker.partitions.partition_read import PartitionRead
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.model.error_code import ErrorCode
from ottla.records.builder import BatchBuilder
from ottla.records.end_marker import EndMarker
from ottla.records.header import HEADER
from ottla.runtime.offload import INLINE, run_inline
from ottla.storage.errors import CoordinatorReplaced, InvalidProducerEpoch, WrongTransactionState
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from tests.unit.broker.leader_answers import fetched
from tests.unit.broker.partitions.test_partition import Fetch, Produce
from tests.unit.broker.partitions.test_replicated_partition import Replicated, records_of
from tests.unit.broker.roles import ELSEWHERE, HERE, lead, resign
from tests.unit.broker.served_log import MANY_BYTES, ServedLog

P = 7
COMMIT, ABORT = EndMarker(True, 3), EndMarker(False, 3)


def batch_of(sequence: int, epoch: int = 0, producer_id: int = P, *, is_transactional: bool = True) -> bytearray:
    builder = BatchBuilder()
    builder.append(FakeClock().now_ms(), b"key", b"v" * 100)
    return builder.build(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
    )


def produce(served: ServedLog, sequence: int, epoch: int = 0, producer_id: int = P) -> tuple[int, int, int]:
    """A transactional batch that the coordinator allows."""
    partition = served.partition
    guard = partition.guard(producer_id, epoch, sequence)
    batch = batch_of(sequence, epoch, producer_id)
    header = HEADER.unpack_from(batch)
    return partition.append(memoryview(batch), header, ACKS_ALL, served.clock.now_ms(), guard)


def mark(served: ServedLog, marker: EndMarker, epoch: int, producer_id: int = P, *, advances: bool = True) -> int:
    now_ms = served.clock.now_ms()
    return served.partition.append_marker(marker, producer_id, epoch, now_ms, advances_epoch=advances)


def committed(partition: Partition, offset: int = 0, size_bytes_max: int = MANY_BYTES) -> PartitionRead:
    return partition.read(-1, offset, -1, size_bytes_max, whole_first_batch=True, may_follow=True, reads_committed=True)


def read_bytes(read: PartitionRead) -> int:
    return 0 if read.run is None else read.run.length_bytes


@pytest.fixture
def served() -> ServedLog:
    return ServedLog("t")


def test_transactional_batch_is_appended_with_a_guard_only(served: ServedLog) -> None:
    batch = batch_of(0)
    with pytest.raises(WrongTransactionState):
        served.append(batch)
    assert produce(served, 0) == (0, 1, 0)
    assert served.partition.guard(P, 0, 1) is None
    assert served.append(batch_of(1)) == (1, 2, 0)


def test_guards_end_with_the_leadership(served: ServedLog) -> None:
    guard = served.partition.guard(P, 0, 0)
    lead(served.partition, 5)
    batch = batch_of(0)
    with pytest.raises(WrongTransactionState):
        served.partition.append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, 0, guard)


def test_partition_that_is_not_led_gives_no_guard_and_takes_no_marker(served: ServedLog) -> None:
    resign(served.partition)
    with pytest.raises(NotLeader):
        served.partition.guard(P, 0, 0)
    with pytest.raises(NotLeader):
        mark(served, COMMIT, 1)


def test_plain_batch_in_an_open_transaction_of_its_producer_is_refused(served: ServedLog) -> None:
    produce(served, 0)
    with pytest.raises(WrongTransactionState):
        served.append(batch_of(1, is_transactional=False))
    assert served.append(batch_of(0, producer_id=P + 1, is_transactional=False)) == (1, 2, 0)


def test_offsets_of_a_coordinator_repeat_sequence_0(served: ServedLog) -> None:
    partition = served.partition
    for offset in range(2):
        guard = partition.guard(P, 0, 0)
        batch = batch_of(0)
        header = HEADER.unpack_from(batch)
        assert partition.append(memoryview(batch), header, ACKS_ALL, 0, guard, has_sequence=False)[0] == offset


def test_marker_waits_for_all_replicas_and_so_does_a_repeated_one(served: ServedLog) -> None:
    produce(served, 0)
    served.become_stable()
    waiting = Produce()
    for slot in range(2):
        required_end = mark(served, COMMIT, 1)
        assert required_end == served.log.log_end_offset == 2
        served.partition.waiting.park_produce(required_end, ACKS_ALL, waiting, slot)
    assert waiting.outcomes == {}
    served.become_stable()
    assert waiting.outcomes == {0: 0, 1: 0}
    assert mark(served, COMMIT, 1) == NO_WAIT


def test_marker_of_an_older_coordinator_or_epoch_is_refused(served: ServedLog) -> None:
    produce(served, 0)
    mark(served, COMMIT, 1)
    with pytest.raises(CoordinatorReplaced):
        mark(served, EndMarker(True, 2), 2)
    with pytest.raises(InvalidProducerEpoch):
        mark(served, COMMIT, 0)
    assert served.log.log_end_offset == 2


def test_marker_needs_as_many_replicas_as_produces_do() -> None:
    here = Replicated(LogConfig(min_insync_replicas=2))
    here.be(HERE, 1, HERE)
    with pytest.raises(NotEnoughReplicas):
        mark(here.served, COMMIT, 1)


def test_committed_read_ends_at_the_open_transaction_and_continues_after_its_marker(served: ServedLog) -> None:
    served.append(batch_of(0, producer_id=P + 1, is_transactional=False))
    produce(served, 0)
    served.become_stable()
    partition = served.partition
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    read = committed(partition)
    assert (read.high_watermark, read.last_stable_offset, read_bytes(read)) == (2, 1, len(served.batches[0]))
    assert read_bytes(committed(partition, 1)) == 0
    assert partition.read(-1, 1, -1, MANY_BYTES, whole_first_batch=True).run is not None
    mark(served, COMMIT, 1)
    assert partition.last_stable_offset == 1, "the marker may be lost"
    served.become_stable()
    read = committed(partition, 1)
    assert (read.last_stable_offset, read_bytes(read), read.aborted) == (3, sum(map(len, served.batches[1:])), [])


def test_committed_read_lists_the_aborted_transactions_of_its_run(served: ServedLog) -> None:
    produce(served, 0)
    produce(served, 0, producer_id=P + 1)
    mark(served, ABORT, 1)
    mark(served, COMMIT, 1, P + 1)
    served.become_stable()
    assert list(committed(served.partition).aborted) == [(P, 0)]
    assert list(committed(served.partition, 3).aborted) == []
    assert list(served.partition.read(-1, 0, -1, MANY_BYTES, whole_first_batch=True).aborted) == []


def test_committed_read_lists_transactions_that_end_in_later_segments(served: ServedLog) -> None:
    produce(served, 0)
    served.roll()
    produce(served, 0, producer_id=P + 1)
    mark(served, ABORT, 1)
    served.roll()
    mark(served, ABORT, 1, P + 1)
    served.become_stable()
    first = committed(served.partition)
    assert list(first.aborted) == [(P, 0)]
    assert list(committed(served.partition, 1).aborted) == [(P, 0), (P + 1, 1)]
    assert list(committed(served.partition, 3).aborted) == [(P + 1, 1)]


def test_small_committed_read_lists_only_what_is_near(served: ServedLog) -> None:
    served.log.update_config(LogConfig(index_interval_bytes=100))
    for number in range(20):
        produce(served, 0, number)
        mark(served, ABORT, number + 1)
    served.become_stable()
    read = committed(served.partition, 0, 1)
    assert (P, 0) in read.aborted
    assert len(read.aborted) <= 3
    assert len(committed(served.partition).aborted) == 20


def test_parked_committed_fetch_is_woken_when_the_marker_is_replicated(served: ServedLog) -> None:
    produce(served, 0)
    served.become_stable()
    fetch = Fetch()
    served.partition.waiting.park_fetch(fetch)
    mark(served, COMMIT, 1)
    assert fetch.woken_count == 0
    served.become_stable()
    assert (fetch.woken_count, committed(served.partition).last_stable_offset) == (1, 2)


def test_committed_read_of_an_older_segment_is_waited_for_at_the_open_transaction(served: ServedLog) -> None:
    produce(served, 0)
    served.roll()
    served.add()
    assert served.partition.ends_in_older_segment(0)
    assert not served.partition.ends_in_older_segment(0, reads_committed=True)


def test_deleted_records_hold_readers_no_longer(served: ServedLog) -> None:
    for sequence in range(3):
        produce(served, sequence)
    served.become_stable()
    served.partition.delete_records_before(2)
    assert served.partition.last_stable_offset == 2
    mark(served, ABORT, 1)
    served.become_stable()
    assert committed(served.partition, 2).last_stable_offset == 4


def test_plain_partition_has_nothing_that_readers_wait_for(served: ServedLog) -> None:
    served.add()
    read = committed(served.partition)
    assert (read.last_stable_offset, read.aborted) == (1, [])


def test_follower_takes_transactions_from_the_bytes_of_its_leader() -> None:
    leading = Replicated()
    leading.be(HERE, 1)
    produce(leading.served, 0)
    produce(leading.served, 0, producer_id=P + 1)
    mark(leading.served, ABORT, 1)
    follower = Replicated()
    follower.be(ELSEWHERE, 1)
    request = follower.partition.follower_log.next_fetch()
    assert request is not None
    answer = fetched(records_of(leading), high_watermark=2)
    follower.partition.follower_log.apply_fetched(request.request_id, answer, 0)
    follower.served.become_stable()
    partition = follower.partition
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    request = partition.follower_log.next_fetch()
    assert request is not None
    partition.follower_log.apply_fetched(request.request_id, fetched(high_watermark=3), 0)
    read = committed(partition)
    assert (read.last_stable_offset, list(read.aborted)) == (1, [(P, 0)])
    follower.be(HERE, 2)
    with pytest.raises(CoordinatorReplaced):
        mark(follower.served, EndMarker(True, 2), 2)


def test_new_leader_holds_committed_readers_until_what_it_recovered_is_replicated() -> None:
    here = Replicated()
    here.be(HERE, 1)
    produce(here.served, 0)
    mark(here.served, COMMIT, 1)
    here.served.become_stable()
    here.partition = here.served.partition = restarted(here.served, high_watermark=1)
    here.version = -1
    here.be(HERE, 2)
    here.partition.end_withholding(EPOCH_START_WAIT_MS * 10)
    assert not here.partition.withholds_reads
    assert committed(here.partition).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert here.partition.read(-1, 0, -1, MANY_BYTES, whole_first_batch=True).error_code == 0
    for node_id in (ELSEWHERE, 3):
        here.fetch(node_id, 2, epoch=2)  # type: ignore[arg-type]
    assert committed(here.partition).last_stable_offset == 2


def test_new_leader_after_a_crash_shows_what_was_decided_below_the_high_watermark() -> None:
    """The batches that its start has read say which transactions the markers above the high watermark end."""
    here = Replicated()
    here.be(HERE, 1)
    for marker, epoch in ((COMMIT, 0), (ABORT, 1)):
        produce(here.served, 0, epoch)
        mark(here.served, marker, epoch + 1)
    here.served.become_stable()
    here.partition = here.served.partition = restarted(here.served, high_watermark=3, is_clean=False)
    here.version = -1
    here.be(HERE, 2)
    here.partition.end_withholding(EPOCH_START_WAIT_MS * 10)
    read = committed(here.partition)
    assert (read.error_code, read.high_watermark, read.last_stable_offset) == (0, 3, 2)
    for node_id in (ELSEWHERE, 3):
        here.fetch(node_id, 4, epoch=2)  # type: ignore[arg-type]
    read = committed(here.partition)
    assert (read.last_stable_offset, list(read.aborted)) == (4, [(P, 2)])


@pytest.mark.parametrize("is_clean", [True, False])
def test_restarted_partition_has_its_open_and_aborted_transactions(served: ServedLog, is_clean: bool) -> None:
    produce(served, 0)
    produce(served, 0, producer_id=P + 1)
    mark(served, ABORT, 1)
    served.become_stable()
    partition = restarted(served, is_clean=is_clean)
    lead(partition, 6)
    assert partition.last_stable_offset == 1
    read = committed(partition)
    assert (read_bytes(read) > 0, list(read.aborted)) == (True, [(P, 0)])
    served.partition = partition
    with pytest.raises(CoordinatorReplaced):
        mark(served, EndMarker(False, 2), 2)
    mark(served, COMMIT, 1, P + 1)
    served.become_stable()
    assert partition.last_stable_offset == 4


def test_cut_marker_opens_its_transaction_again() -> None:
    here = Replicated()
    here.be(HERE, 1)
    produce(here.served, 0)
    mark(here.served, ABORT, 1)
    here.served.become_stable()
    here.be(ELSEWHERE, 2)
    run_inline(here.served.log.truncate_to(1, INLINE))
    assert here.served.log.transactions.open == {P: 0}
    assert here.served.log.aborted.across(1) == []


def restarted(served: ServedLog, *, high_watermark: int = 0, is_clean: bool = True) -> Partition:
    """The partition over the log as the next start of the broker finds it."""
    if is_clean:
        served.directory.close()
    else:
        served.directory.abandon()
        served.disk = served.disk.kill()
    served.reopen()
    return Partition(served.log, HERE, high_watermark=high_watermark)
