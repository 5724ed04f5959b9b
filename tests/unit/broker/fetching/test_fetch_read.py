"""What a fetch finds in the logs: limits over partitions, the first batch always, errors of one partition alone."""

from __future__ import annotations

import pytest

from ottla.broker.fetching.fetch_read import ends_in_older_segment, read_request
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.protocol.fetch import FetchPartition, FetchRequest
from tests.unit.broker.roles import lead
from tests.unit.broker.served_log import MANY_BYTES as MANY
from tests.unit.broker.served_log import ServedLog


class Logs:
    """Three partitions of topic `t`, each batch as large as the others."""

    def __init__(self) -> None:
        self.table = PartitionTable()
        self.logs = [ServedLog("t", index, leader_epoch=3) for index in range(3)]
        for log in self.logs:
            self.table.add(log.partition)

    def fill(self, index: int, batches: int) -> int:
        for _ in range(batches):
            size_bytes = self.logs[index].add()
        return size_bytes

    def sizes(self, *wanted: FetchPartition, max_bytes: int = MANY, broker_max: int = MANY) -> list[int | None]:
        read = read_request(self.table.by_name, request_of(*wanted, max_bytes=max_bytes), broker_max)
        ((_, partitions),) = read.topics
        assert read.readable_bytes == sum(each.run.length_bytes for each in partitions if each.run is not None)
        return [None if each.run is None else each.run.length_bytes for each in partitions]


def request_of(*wanted: FetchPartition, max_bytes: int = MANY) -> FetchRequest:
    return FetchRequest(-1, 0, 1, max_bytes, 0, 0, -1, [(b"t", list(wanted))], [], b"")


def at(offset: int, index: int = 0, *, limit: int = MANY, epoch: int = -1, last_epoch: int = -1) -> FetchPartition:
    return (index, epoch, offset, last_epoch, -1, limit)


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.mark.parametrize("max_bytes", [0, -1, 1])
def test_first_batch_comes_whole_however_small_the_limits_are(logs: Logs, max_bytes: int) -> None:
    size = logs.fill(0, 2)
    assert logs.sizes(at(0), max_bytes=max_bytes) == [size]
    assert logs.sizes(at(0), broker_max=max_bytes) == [size]
    assert logs.sizes(at(0, limit=max_bytes)) == [size]


def test_first_batch_comes_from_the_first_partition_that_has_one(logs: Logs) -> None:
    size = logs.fill(1, 1)
    logs.fill(2, 1)
    assert logs.sizes(at(0, 0), at(0, 1), at(0, 2), max_bytes=1) == [None, size, None]


def test_later_partitions_get_what_the_earlier_ones_left(logs: Logs) -> None:
    size = logs.fill(0, 2)
    logs.fill(1, 2)
    logs.fill(2, 2)
    assert logs.sizes(at(0, 0), at(0, 1), at(0, 2), max_bytes=3 * size) == [2 * size, size, None]
    assert logs.sizes(at(0, 0, limit=size), at(0, 1, limit=size), at(0, 2, limit=0)) == [size, size, None]


def test_only_what_is_below_the_high_watermark_is_given(logs: Logs) -> None:
    size = logs.fill(0, 2)
    logs.logs[0].add(is_stable=False)
    assert logs.sizes(at(0)) == [2 * size]
    assert logs.sizes(at(2)) == [None]


def test_error_of_one_partition_leaves_the_others_alone(logs: Logs) -> None:
    size = logs.fill(1, 1)
    request = request_of(at(5, 0), at(0, 9), at(0, 1), at(0, 2, epoch=2))
    read = read_request(logs.table.by_name, request, MANY)
    ((_, partitions),) = read.topics
    assert [each.error_code for each in partitions] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]
    assert (read.readable_bytes, read.is_due) == (size, True)
    assert (partitions[0].high_watermark, partitions[0].log_start_offset) == (-1, -1)


def test_reader_of_another_history_is_told_where_it_leaves_ours(logs: Logs) -> None:
    logs.fill(0, 2)
    lead(logs.logs[0].partition, 5)
    logs.fill(0, 1)
    read = read_request(logs.table.by_name, request_of(at(3, last_epoch=3)), MANY)
    ((_, (partition,)),) = read.topics
    assert (partition.error_code, partition.diverging, partition.run) == (0, (3, 2), None)
    assert read.is_due


def test_reader_of_an_epoch_without_batches_here_is_told_where_the_last_known_one_ended(logs: Logs) -> None:
    """A new leader that has appended nothing yet must not make its readers lose their place."""
    logs.fill(0, 2)
    lead(logs.logs[0].partition, 5)
    read = read_request(logs.table.by_name, request_of(at(2, last_epoch=4)), MANY)
    ((_, (partition,)),) = read.topics
    assert (partition.error_code, partition.diverging) == (0, (3, 2))


def test_reader_of_an_epoch_that_is_not_known_here_is_out_of_range(logs: Logs) -> None:
    logs.fill(0, 2)
    read = read_request(logs.table.by_name, request_of(at(1, last_epoch=4)), MANY)
    ((_, (partition,)),) = read.topics
    assert (partition.error_code, partition.diverging, partition.run) == (ErrorCode.OFFSET_OUT_OF_RANGE, None, None)
    assert read.is_due


@pytest.mark.parametrize(
    ("offset", "rolled_at", "stable_end", "expected"),
    [(0, 0, 2, False), (0, 1, 2, True), (1, 1, 2, False), (0, 2, 2, True), (1, 2, 1, False), (2, 2, 2, False)],
)
def test_run_that_ends_with_its_segment_is_not_waited_for(
    logs: Logs, offset: int, rolled_at: int, stable_end: int, expected: bool
) -> None:
    log = logs.logs[0]
    for end_offset in (1, 2):
        log.add(is_stable=end_offset <= stable_end)
        if end_offset == rolled_at:
            log.roll()
    assert log.partition.high_watermark == stable_end
    assert ends_in_older_segment(logs.table.by_name, request_of(at(0, 9), at(offset))) is expected


def test_reader_of_an_epoch_before_the_first_batch_of_the_current_one_is_not_out_of_range(logs: Logs) -> None:
    logs.fill(0, 2)
    lead(logs.logs[0].partition, 5)
    ((_, (partition,)),) = read_request(logs.table.by_name, request_of(at(2, last_epoch=4)), MANY).topics
    assert (partition.error_code, partition.diverging) == (0, (3, 2))


def test_partition_that_is_led_elsewhere_is_refused(logs: Logs) -> None:
    logs.table.add(ServedLog("t", 3, leader_epoch=None).partition)
    ((_, (partition,)),) = read_request(logs.table.by_name, request_of(at(0, 3)), MANY).topics
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_read_contains_both_ends_and_the_aborted_ranges(logs: Logs) -> None:
    logs.fill(0, 2)
    ((_, (partition,)),) = read_request(logs.table.by_name, request_of(at(0)), MANY).topics
    assert (partition.high_watermark, partition.last_stable_offset, partition.aborted) == (2, 2, ())
