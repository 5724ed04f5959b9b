from __future__ import annotations

from collections.abc import Sequence

from ottla.client.producing.accumulator import Accumulator, Run
from ottla.client.producing.batch import Batch
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.settings import ProducerSettings
from ottla.records.builder import RECORD_OVERHEAD_BYTES_MAX
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import decode_batch
from ottla.testing.fake_clock import FakeClock

VALUE = b"v" * 64
SIZE_BYTES = RECORD_OVERHEAD_BYTES_MAX + len(VALUE)


class Collecting:
    """An accumulator with a clock turned by hand; messages without a key go to partition 0, then 1, 2, 0, ..."""

    def __init__(self, **settings: int) -> None:
        self.clock = FakeClock()
        self.changes_count = 0
        self._chosen_count = 0
        found = ProducerSettings(**settings)  # type: ignore[arg-type]
        self.accumulator = Accumulator(found, ProducerMonitor(), self.clock, self._choose, self._changed)
        self.accumulator.learn_topic("t", 3, [0, 1, 2])

    def _choose(self, partitions: Sequence[int]) -> int:
        self._chosen_count += 1
        return partitions[(self._chosen_count - 1) % len(partitions)]

    def _changed(self) -> None:
        self.changes_count += 1

    def add(self, partition: int | None = None, value: bytes = VALUE) -> bool:
        size_bytes = RECORD_OVERHEAD_BYTES_MAX + len(value)
        return self.accumulator.add("t", partition, value, None, (), 1, size_bytes) is not None

    def add_set(self, count: int, partition: int | None = None) -> bool:
        run = Run(
            partition, range(count), [VALUE] * count, [None] * count, RECORD_OVERHEAD_BYTES_MAX, SIZE_BYTES * count
        )
        return self.accumulator.add_set("t", [run], (), 1) is not None

    def taken(self) -> list[tuple[int, int]]:
        """Partition and count of messages of each batch that is ready now."""
        return [(batch.partition.partition, batch.count) for batch in self.take()]

    def take(self) -> list[Batch]:
        return list(self.accumulator.take_ready(self.clock.monotonic_ms()))


def test_batch_is_ready_when_its_linger_time_is_over() -> None:
    it = Collecting(linger_ms=5)
    it.add()
    it.clock.advance(4)
    assert it.taken() == []
    assert it.accumulator.next_due_ms == 5
    it.clock.advance(1)
    assert it.taken() == [(0, 1)]
    assert it.accumulator.next_due_ms is None


def test_batch_is_ready_at_its_count_of_messages() -> None:
    it = Collecting(batch_count_max=3, linger_ms=1000)
    for _ in range(3):
        assert it.taken() == []
        it.add()
    assert it.taken() == [(0, 3)]


def test_batch_is_closed_before_the_message_that_has_no_room_in_it() -> None:
    it = Collecting(batch_bytes=BATCH_OVERHEAD_BYTES + 4 * SIZE_BYTES - 1, linger_ms=1000)
    for _ in range(4):
        it.add()
    assert it.taken() == [(0, 3)], "the fourth is in the next one"


def test_messages_without_a_key_go_to_another_partition_with_each_batch() -> None:
    it = Collecting(batch_count_max=2, linger_ms=1000)
    for _ in range(8):
        it.add()
    assert it.taken() == [(0, 2), (1, 2), (2, 2), (0, 2)]


def test_short_way_leads_to_the_open_batch_and_no_further() -> None:
    it = Collecting(batch_bytes=BATCH_OVERHEAD_BYTES + 4 * SIZE_BYTES, linger_ms=1000)
    assert it.accumulator.keyless == {}
    it.add()
    batch = it.accumulator.keyless["t"]
    taken = 0
    while batch.append(VALUE, None, (), 1, SIZE_BYTES) is not None:
        taken += 1
    assert taken == 3
    it.add()
    assert it.taken() == [(0, 4)]
    assert it.accumulator.keyless["t"].partition.partition == 1


def test_short_way_comes_back_to_a_batch_that_messages_with_keys_have_opened() -> None:
    it = Collecting(linger_ms=1000)
    it.add(partition=0)
    assert it.accumulator.keyless == {}
    it.add()
    assert it.accumulator.keyless["t"] is it.accumulator.find("t", 0)


def test_short_way_is_gone_when_its_batch_is_due() -> None:
    it = Collecting(linger_ms=5)
    it.add()
    it.clock.advance(5)
    it.take()
    assert it.accumulator.keyless == {}


def test_message_larger_than_a_batch_has_a_batch_of_its_own() -> None:
    it = Collecting(batch_bytes=1000, linger_ms=1000)
    it.add(partition=1)
    it.add(partition=1, value=bytes(5000))
    it.add(partition=1)
    assert it.taken() == [(1, 1), (1, 1)]
    it.accumulator.close_all()
    assert it.taken() == [(1, 1)]


def test_buffer_takes_nothing_while_it_is_full_and_sends_what_it_has() -> None:
    it = Collecting(buffer_bytes=BATCH_OVERHEAD_BYTES + 2 * SIZE_BYTES, linger_ms=1000)
    assert it.add()
    assert it.add()
    assert not it.add()
    (batch,) = it.take()
    assert batch.count == 2, "it did not wait for its linger time: that would hold up the sender"
    assert not it.add()
    assert it.accumulator.settle(batch)
    assert it.add()


def test_room_that_encoding_saves_is_free_at_once() -> None:
    it = Collecting(buffer_bytes=BATCH_OVERHEAD_BYTES + 2 * SIZE_BYTES, linger_ms=0)
    it.add()
    it.add()
    (batch,) = it.take()
    it.accumulator.shrink(batch, 10)
    assert it.add(), "most of the buffer is free"
    it.accumulator.settle(batch)
    (second,) = it.take()
    it.accumulator.settle(second)
    assert [it.add() for _ in range(3)] == [True, True, False], "nothing got lost of the room, or came to it"


def test_one_message_larger_than_the_buffer_is_taken_when_it_is_empty() -> None:
    it = Collecting(buffer_bytes=100, linger_ms=0)
    assert it.add(value=bytes(1000))
    assert not it.add()
    (batch,) = it.take()
    it.accumulator.settle(batch)
    assert it.add()


def test_set_is_taken_as_a_whole_or_not_at_all() -> None:
    it = Collecting(buffer_bytes=BATCH_OVERHEAD_BYTES * 2 + 4 * SIZE_BYTES, linger_ms=1000)
    assert it.add()
    assert not it.add_set(4)
    assert it.taken() == [(0, 1)], "only what was there before"
    assert it.add_set(2)


def test_set_that_fits_into_one_batch_is_not_split() -> None:
    it = Collecting(batch_bytes=BATCH_OVERHEAD_BYTES + 5 * SIZE_BYTES, linger_ms=1000)
    it.add_set(3)
    it.add_set(3)
    it.add_set(2)
    it.accumulator.close_all()
    assert it.taken() == [(0, 3), (1, 5)]


def test_large_set_without_keys_stays_in_one_partition_over_several_batches() -> None:
    it = Collecting(batch_bytes=BATCH_OVERHEAD_BYTES + 5 * SIZE_BYTES, linger_ms=1000)
    it.add_set(12)
    it.add()
    it.accumulator.close_all()
    assert it.taken() == [(0, 5), (0, 5), (0, 3)], "what follows joins the rest of it"


def test_grants_leave_room_for_batches_of_many_partitions() -> None:
    it = Collecting(buffer_bytes=100_000, linger_ms=1000)
    it.accumulator.learn_topic("t", 200, range(200))
    assert all(it.add(partition=number) for number in range(200)), "a batch takes what it has, and a bit more"


def test_messages_are_encoded_in_order_with_all_their_fields() -> None:
    it = Collecting(linger_ms=0)
    for number in range(10):
        key = b"k%d" % number if number % 3 else None
        it.accumulator.add("t", 0, b"v%d" % number, key, (("h", None),) * (number % 2), 1000 + number, 100)
    (batch,) = it.take()
    records = decode_batch(memoryview(batch.encode(Codec.ZSTD, None, has_checksum=True)))
    assert [record.value for record in records] == [b"v%d" % number for number in range(10)]
    assert [record.key for record in records] == [b"k%d" % n if n % 3 else None for n in range(10)]
    assert [record.timestamp_ms for record in records] == [1000 + number for number in range(10)]
    assert [record.headers for record in records] == [(("h", None),) * (number % 2) for number in range(10)]


def test_sender_is_told_when_it_has_something_to_do_earlier() -> None:
    it = Collecting(batch_count_max=3, linger_ms=1000)
    it.add()
    assert it.changes_count == 1, "a batch was opened: it has a due time"
    it.add()
    assert it.changes_count == 1
    it.add()
    assert it.changes_count == 2, "it is full"


def test_forgotten_topic_still_sends_what_was_taken() -> None:
    it = Collecting(linger_ms=1000)
    it.add()
    it.accumulator.forget_topic("t")
    assert it.accumulator.partitions_count("t") is None
    assert it.taken() == [(0, 1)]
