"""The open batches of a producer: which message goes where, when a batch is closed, how much is kept.

Pure, and for one thread at a time: callers hold the monitor's lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ottla.client.producing.batch import Batch
from ottla.client.producing.delivery import MessageDelivery, Part, SetDelivery
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.settings import ProducerSettings
from ottla.model.identifiers import TopicPartition
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import Headers
from ottla.runtime.clock import Clock

# A batch takes at most this part of the free room at once, so that many batches with little in them leave room.
_GRANT_SHARE: Final = 16


class Run(NamedTuple):
    """Messages of a set for one partition; None: any.  `positions` are their places in the set.

    A message takes `alike_bytes` and its key and value at most; all of them take `total_bytes`.
    """

    partition: int | None
    positions: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    alike_bytes: int
    total_bytes: int

    def ends_bytes(self) -> Sequence[int]:
        """What the first, the first two, ... take."""
        alike_bytes = self.alike_bytes
        return list(
            accumulate(
                alike_bytes + (0 if value is None else len(value)) + (0 if key is None else len(key))
                for value, key in zip(self.values, self.keys, strict=True)
            )
        )


class _Topic:
    """`sticky` is the partition that messages without a key go to, until its batch is closed."""

    __slots__ = ("available", "batches", "partitions_count", "sticky")

    def __init__(self) -> None:
        self.partitions_count = 0
        self.available: Sequence[int] = ()
        self.batches: dict[int, Batch] = {}
        self.sticky: int | None = None


class Accumulator:
    """`keyless` has the open batch of each topic for messages without a key: the way in of the common case.

    `on_ready` is called when a batch was opened or closed, that is, when the sending thread may have to do something
    earlier than it thought.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        monitor: ProducerMonitor,
        clock: Clock,
        choose: Callable[[Sequence[int]], int],
        on_ready: Callable[[], None],
    ) -> None:
        self.keyless: dict[str, Batch] = {}
        self._monitor = monitor
        self._clock = clock
        self._choose = choose
        self._on_ready = on_ready
        self._linger_ms = settings.linger_ms
        self._batch_bytes = min(settings.batch_bytes, settings.max_request_bytes)
        self._count_max = settings.batch_count_max
        self._buffer_bytes = self._free_bytes = settings.buffer_bytes
        self._topics: dict[str, _Topic] = {}
        # In the order of their opening, which is that of `due_ms`.
        self._open: dict[Batch, None] = {}
        self._ready: deque[Batch] = deque()
        self._unsettled: dict[Batch, None] = {}
        self._used_topics: set[str] = set()

    @property
    def unsettled(self) -> Mapping[Batch, None]:
        """The batches without an outcome, open ones included, in the order of their opening."""
        return self._unsettled

    @property
    def buffered_bytes(self) -> int:
        """What they take of the buffer, with what is granted to open ones."""
        return self._buffer_bytes - self._free_bytes

    @property
    def next_due_ms(self) -> float | None:
        """When the first open batch must be sent; None when there is none."""
        return next((batch.due_ms for batch in self._open), None)

    @property
    def ready_count(self) -> int:
        """The closed batches that the sending thread has not taken yet."""
        return len(self._ready)

    def partitions_count(self, topic: str) -> int | None:
        """None when the topic is not known.  Without the lock, too."""
        known = self._topics.get(topic)
        return None if known is None else known.partitions_count

    def learn_topic(self, topic: str, partitions_count: int, available: Sequence[int]) -> None:
        """`available` are the partitions that have a leader: messages without a key go to one of them."""
        known = self._topics.setdefault(topic, _Topic())
        known.partitions_count = partitions_count
        known.available = available or range(partitions_count)

    def forget_topic(self, topic: str) -> None:
        """It seems to be deleted: its open batches are closed, and the next message looks it up again."""
        known = self._topics.pop(topic, None)
        if known is not None:
            for batch in list(known.batches.values()):
                self._close(batch, known)

    def take_used_topics(self) -> set[str]:
        """The topics that had a batch opened since the last call."""
        used, self._used_topics = self._used_topics, set()
        return used

    def find(self, topic: str, partition: int) -> Batch | None:
        """The open batch of a partition."""
        known = self._topics.get(topic)
        return None if known is None else known.batches.get(partition)

    def add(
        self,
        topic: str,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
    ) -> MessageDelivery | None:
        """Take a message for a known topic; None while there is no room for it."""
        try:
            known = self._topics[topic]
            number = self._place(topic, known, partition, size_bytes, 1)
            batch = known.batches.get(number)
            if not self._has_room(size_bytes, batch):
                return None
            batch = batch or self._open_batch(topic, known, number)
            self._grant(batch, size_bytes)
            if batch.room_count > 1:
                delivery = batch.append(value, key, headers, timestamp_ms, size_bytes)
                assert delivery is not None, "room was made"
            else:
                delivery = batch.append_last(value, key, headers, timestamp_ms, size_bytes)
            self._close_if_full(batch, known)
        except BaseException:
            self._mend()
            raise
        return delivery

    def add_set(self, topic: str, runs: Sequence[Run], headers: Headers, timestamp_ms: int) -> SetDelivery | None:
        """Take a whole set or nothing of it: None while there is no room.  A set larger than the buffer needs all."""
        parts: list[Part] = []
        try:
            if not self._has_room(sum(run.total_bytes + BATCH_OVERHEAD_BYTES for run in runs)):
                return None
            known = self._topics[topic]
            for run in runs:
                self._add_run(topic, known, run, headers, timestamp_ms, parts)
        except BaseException:
            self._mend()
            raise
        return SetDelivery(parts, sum(len(run.values) for run in runs))

    def take_ready(self, now_ms: float) -> Sequence[Batch]:
        """The closed batches, in order, and those that are due."""
        while self._open:
            batch = next(iter(self._open))
            if batch.due_ms > now_ms:
                break
            self._close(batch, self._topics[batch.partition.topic])
        ready, self._ready = self._ready, deque()
        for batch in ready:
            batch.take()
        return ready

    def close_all(self) -> None:
        """Nothing that is open waits any longer."""
        try:
            for batch in list(self._open):
                self._close(batch, self._topics[batch.partition.topic])
        except BaseException:
            self._mend()
            raise

    def shrink(self, batch: Batch, size_bytes: int) -> None:
        """Its messages are encoded, and take this much now."""
        self._free_bytes += batch.reserved_bytes - size_bytes
        batch.shrink(size_bytes)

    def settle(self, batch: Batch) -> bool:
        """It has an outcome, and its room is free again.  False when it had one before."""
        if batch not in self._unsettled:
            return False
        del self._unsettled[batch]
        self._free_bytes += batch.reserved_bytes
        return True

    def forget_everything(self) -> None:
        """In the child of a fork: the batches are the parent's."""
        self.keyless.clear()
        self._topics.clear()
        self._open.clear()
        self._ready.clear()
        self._unsettled.clear()

    def _place(self, topic: str, known: _Topic, partition: int | None, size_bytes: int, count: int) -> int:
        """The partition where so much goes next: to its open batch, when it fits, or to a new one."""
        while True:
            number = self._stick(topic, known, known.sticky) if partition is None else partition
            batch = known.batches.get(number)
            if batch is None or (batch.used_bytes + size_bytes <= self._batch_bytes and count <= batch.room_count):
                return number
            # Without a partition, the next round is for another one.
            self._close(batch, known)

    def _stick(self, topic: str, known: _Topic, number: int | None) -> int:
        """Messages without a key go to this partition now, or to a random one."""
        if number is None or number != known.sticky:
            number = known.sticky = self._choose(known.available) if number is None else number
            if number in known.batches:
                self.keyless[topic] = known.batches[number]
        return number

    def _has_room(self, size_bytes: int, batch: Batch | None = None) -> bool:
        """Room in the buffer.  If there is none, all that takes it up is on its way from now on."""
        granted_bytes = 0 if batch is None else batch.room_bytes
        if size_bytes <= self._free_bytes + granted_bytes or not self._unsettled:
            return True
        for each in self._open:
            self._free_bytes += each.give_back()
        if size_bytes <= self._free_bytes:
            return True
        self.close_all()
        return not self._unsettled

    def _open_batch(self, topic: str, known: _Topic, number: int) -> Batch:
        now_ms = self._clock.monotonic_ms()
        batch = Batch(
            TopicPartition(topic, number),
            self._monitor,
            count_max=self._count_max,
            opened_ms=now_ms,
            due_ms=now_ms + self._linger_ms,
        )
        self._unsettled[batch] = None
        self._open[batch] = None
        self._free_bytes -= batch.reserved_bytes
        known.batches[number] = batch
        self._used_topics.add(topic)
        if number == known.sticky:
            self.keyless[topic] = batch
        self._on_ready()
        return batch

    def _grant(self, batch: Batch, size_bytes: int) -> None:
        """Let the batch have at least so much room."""
        needed_bytes = size_bytes - batch.room_bytes
        if needed_bytes > 0:
            spare_bytes = min(self._free_bytes // _GRANT_SHARE, self._batch_bytes - batch.used_bytes)
            granted_bytes = max(needed_bytes, spare_bytes - batch.room_bytes)
            batch.grant(granted_bytes)
            self._free_bytes -= granted_bytes

    def _add_run(
        self, topic: str, known: _Topic, run: Run, headers: Headers, timestamp_ms: int, parts: list[Part]
    ) -> None:
        """The messages of a run go to one partition, into as many batches as they need."""
        start, taken_bytes, count = 0, 0, len(run.values)
        # What fits into one batch is not split.
        number = self._place(topic, known, run.partition, run.total_bytes, count)
        batch = known.batches.get(number) or self._open_batch(topic, known, number)
        if batch.used_bytes + run.total_bytes <= self._batch_bytes and count <= batch.room_count:
            self._grant(batch, run.total_bytes)
            parts.append(batch.extend(run.values, run.keys, headers, timestamp_ms, run.total_bytes, run.positions))
            self._close_if_full(batch, known)
            return
        ends_bytes = run.ends_bytes()
        while start < count:
            if run.partition is None:
                self._stick(topic, known, number)
            batch = known.batches.get(number) or self._open_batch(topic, known, number)
            room_bytes = self._batch_bytes - batch.used_bytes
            end = min(bisect_right(ends_bytes, taken_bytes + room_bytes), start + batch.room_count)
            if end == start and batch.count:
                self._close(batch, known)
                continue
            end = max(end, start + 1)  # one message may be larger than a batch
            size_bytes = ends_bytes[end - 1] - taken_bytes
            self._grant(batch, size_bytes)
            some = slice(start, end)
            parts.append(
                batch.extend(run.values[some], run.keys[some], headers, timestamp_ms, size_bytes, run.positions[some])
            )
            start, taken_bytes = end, ends_bytes[end - 1]
            self._close_if_full(batch, known)

    def _close_if_full(self, batch: Batch, known: _Topic) -> None:
        if not batch.room_count or batch.used_bytes >= self._batch_bytes:
            self._close(batch, known)

    def _close(self, batch: Batch, known: _Topic) -> None:
        """Nothing more goes into it; messages without a key go to another partition, by chance, from now on."""
        topic, number = batch.partition
        del known.batches[number]
        del self._open[batch]
        if number == known.sticky:
            known.sticky = None
            self.keyless.pop(topic, None)
        self._free_bytes += batch.give_back()
        self._ready.append(batch)
        self._on_ready()

    def _mend(self) -> None:
        """After Ctrl-C in the middle of a change: what the sending thread has not taken is closed and sent as it is."""
        self.keyless.clear()
        self._open.clear()
        for known in self._topics.values():
            known.batches.clear()
            known.sticky = None
        untaken = [batch for batch in self._unsettled if not batch.is_taken]
        for batch in untaken:
            batch.give_back()
            if not batch.count:
                del self._unsettled[batch]
        self._ready = deque(batch for batch in untaken if batch.count)
        self._free_bytes = self._buffer_bytes - sum(batch.reserved_bytes for batch in self._unsettled)
        self._on_ready()
