"""What one stream has to hand out: what was fetched ahead of its partitions, and what it cannot read.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ottla.client.fetching.fetch_requests import AbortedBatches, FetchedPartition, is_end_known
from ottla.client.streams.errors import NotAssigned, PoisonMessage
from ottla.client.streams.message_run import MessageRun
from ottla.client.streams.reading import HandOut, Reading
from ottla.client.streams.rebalance_changes import Changes, PendingChanges
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB
from ottla.records.header import BatchHeader, read_header
from ottla.records.record import split_batches

# A partition gets at least this much of a fetch, however many share the stream's room: batches are about so large.
_FETCH_BYTES_MIN: Final = 16 * KIB


class _Piece:
    """Consecutive batches of one answer.  `aborted` knows those of aborted transactions, if there may be any."""

    __slots__ = ("aborted", "batches", "high_watermark", "size_bytes")

    def __init__(self, fetched: FetchedPartition) -> None:
        self.high_watermark = fetched.high_watermark
        records = fetched.records
        self.size_bytes = len(records)
        # A small part of a large answer would keep all of it in memory.
        if 2 * len(records) < len(memoryview(records.obj).cast("B")):
            records = memoryview(bytes(records))
        self.batches: Iterator[memoryview] = split_batches(records)
        aborted = fetched.aborted_transactions
        self.aborted = AbortedBatches(aborted) if aborted else None


class FetchedBatch(NamedTuple):
    """`high_watermark`: with which it came.  `aborted`: of its answer, whose batches it must see in order."""

    reading: Reading
    batch: memoryview
    high_watermark: int
    aborted: AbortedBatches | None


class Prefetched:
    """Batches that wait for their stream, and the room for more.

    At most `bytes_max` wait or are being fetched, and for each partition 16 KiB or one batch that is larger.
    """

    def __init__(self, bytes_max: int, partition_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._pieces: dict[Reading, deque[_Piece]] = {}
        # Readings with pieces, the next one first.
        self._turns: deque[Reading] = deque()
        self._waiting_bytes = 0
        self._reserved_bytes: dict[Reading, int] = {}
        # Whether a fetch was refused room since there was some again.
        self._is_wanted = False

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def reserve(self, reading: Reading, readings_count: int) -> int:
        """Bytes that a fetch may bring; `readings_count` share the room.  0 while half of it is full."""
        if reading in self._reserved_bytes:
            return 0
        free_bytes = self._bytes_max - self._waiting_bytes - sum(self._reserved_bytes.values())
        if self._waiting_bytes > self._bytes_max // 2:
            self._is_wanted = True
            return 0
        share_bytes = max(_FETCH_BYTES_MIN, free_bytes // max(1, readings_count - len(self._reserved_bytes)))
        self._reserved_bytes[reading] = min(share_bytes, self._partition_bytes_max)
        return self._reserved_bytes[reading]

    def on_landed(self, reading: Reading, size_bytes: int) -> None:
        """A fetch has ended; so many bytes of it will be put here, or dropped."""
        self._reserved_bytes.pop(reading, None)
        self._waiting_bytes += size_bytes

    def put(self, reading: Reading, fetched: FetchedPartition) -> None:
        pieces = self._pieces.setdefault(reading, deque())
        if not pieces:
            self._turns.append(reading)
        pieces.append(_Piece(fetched))

    def has(self, reading: Reading) -> bool:
        """Whether anything of it waits: the last of a piece may be empty, which shows when its turn comes."""
        return bool(self._pieces.get(reading))

    def forget_bytes(self, size_bytes: int) -> None:
        """What had landed was not put here."""
        self._waiting_bytes -= size_bytes

    def drop(self, reading: Reading) -> None:
        """Forget what waits of this reading."""
        pieces = self._pieces.pop(reading, None)
        if pieces is not None:
            self._waiting_bytes -= sum(piece.size_bytes for piece in pieces)
            if reading in self._turns:
                self._turns.remove(reading)

    def next_batch(self) -> FetchedBatch | None:
        """The next batch of the reading whose turn it is."""
        while self._turns:
            reading = self._turns[0]
            pieces = self._pieces[reading]
            piece = pieces[0]
            batch = next(piece.batches, None)
            if batch is not None:
                self._turns.rotate(-1)
                return FetchedBatch(reading, batch, piece.high_watermark, piece.aborted)
            self._waiting_bytes -= pieces.popleft().size_bytes
            if not pieces:
                self._turns.popleft()
        return None

    def take_wanted(self) -> bool:
        """Whether a fetch that was refused may go now; said once."""
        if self._is_wanted and self._waiting_bytes <= self._bytes_max // 2:
            self._is_wanted = False
            return True
        return False


def _is_aborted(aborted: AbortedBatches, header: BatchHeader, batch: memoryview) -> bool:
    """Whether no message of the batch is handed out.  A damaged one is opened, and raised as such."""
    try:
        return aborted.is_aborted(header, batch)
    except WireError:
        return False


OpenBatch: TypeAlias = Callable[[TopicPartition, memoryview, int], Iterator[MessageRun]]


class _Unreadable(NamedTuple):
    """What a stream raises instead of a message, until it is stepped over or sought away from."""

    reading: Reading
    error: OttlaError
    # What is left of the batch after a message that cannot be read.
    rest: HandOut | None
    # Where it continues without one; None where only a seek helps.
    next_offset: int | None
    # Whether nothing that follows it was fetched.
    ends_fetches: bool


def _why_not(unreadable: _Unreadable | None) -> str:
    """What keeps a stream from stepping over what it raised last."""
    if unreadable is None:
        return "there is no message to step over"
    if isinstance(unreadable.error, PoisonMessage):
        return f"the end of the damaged batch is not known: {unreadable.error}"
    return f"not a message: {unreadable.error}"


class StreamBuffer:
    """What one stream hands out next, and what it raises; it rings when a request may find something new."""

    def __init__(self, name: str, prefetched: Prefetched, open_batch: OpenBatch) -> None:
        self.name = name
        self.prefetched = prefetched
        self.readings: dict[TopicPartition, Reading] = {}
        self.assignments_count = 0
        # Of the batches that were handed out, or started to be.
        self.messages_count = 0
        self.batches_count = 0
        self.batches_bytes = 0
        # Partitions that are gone, with messages that no transaction was given the offsets of.
        self._moved: set[TopicPartition] = set()
        # The thread that requested a batch last.
        self.requester: int | None = None
        self._is_requested = False
        self._open_batch = open_batch
        self._ring: Callable[[], None] = lambda: None
        self._hand_out: HandOut | None = None
        self._rest: HandOut | None = None
        self._unreadable: _Unreadable | None = None
        # Raised when what was fetched before is handed out.
        self._later: dict[Reading, _Unreadable] = {}
        # Readings with messages that count as passed with the next request.
        self._held: set[Reading] = set()
        # Many messages are being taken: what the request before it had returned is passed, and none of its own is.
        self.is_taking_many = False
        # Nothing is handed out while the user's code has to be notified of these.
        self._changes = PendingChanges()
        self._notifies = False

    def ring_by(self, ring: Callable[[], None]) -> None:
        """`ring` is called from now on, with the lock: the streams of a connector are opened after their buffers."""
        self._ring = ring

    def ring(self) -> None:
        self._ring()

    def notify(self, *, notifies: bool) -> None:
        """Whether the user's code runs when partitions are assigned, and before they are given back."""
        self._notifies = notifies

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_changes(self) -> Changes:
        return self._changes.take()

    def on_revoked(self, partition: TopicPartition) -> bool:
        """Whether the release of the partition waits for the user's code."""
        return self._follows(partition) and self._changes.on_revoked(partition)

    def _follows(self, partition: TopicPartition) -> bool:
        """Also without the user's code, where a notice is left of when there was some."""
        return self._notifies or self._changes.has_notice_of(partition)

    @property
    def has_held(self) -> bool:
        return bool(self._held)

    def hold(self, reading: Reading) -> None:
        reading.hold()
        self._held.add(reading)

    def begin_many(self) -> None:
        """The message in hand is passed, those after it in its batch are held."""
        self.is_taking_many = True
        hand_out = self._hand_out
        if hand_out is not None and hand_out.reading.hand_out is hand_out:
            hand_out.reading.pass_in_hand()
            self._held.add(hand_out.reading)

    def end_many(self) -> None:
        """The messages that were taken are returned."""
        self.is_taking_many = False

    def pass_held(self) -> set[Reading]:
        """What was held is passed: gives the readings."""
        held, self._held = self._held, set()
        for reading in held:
            reading.pass_held()
        return held

    def add(self, reading: Reading) -> None:
        self.readings[reading.partition] = reading
        self.assignments_count += 1
        if self._notifies:
            self._changes.on_assigned(reading.partition)

    def remove(self, reading: Reading) -> None:
        if reading.take_untaken():
            self._moved.add(reading.partition)
        self.drop(reading)
        self._held.discard(reading)
        del self.readings[reading.partition]
        if self._follows(reading.partition):
            self._changes.on_over(reading.partition, was_revoked=reading.release_by_ms is not None)
            self.ring()

    def take_moved(self) -> set[TopicPartition]:
        """The partitions that are gone, or going, with messages that no transaction was given; each is named once."""
        going = {each.partition for each in self.readings.values() if each.is_answered and each.take_untaken()}
        moved, self._moved = self._moved | going, set()
        return moved

    def reading_of(self, partition: TopicPartition) -> Reading:
        """Raises NotAssigned."""
        reading = self.readings.get(partition)
        if reading is None or reading.is_stopped:
            has = ", ".join(map(str, self.readings)) or "none"
            raise NotAssigned(f"{partition} is not assigned to this stream now; it has {has}")
        return reading

    def readings_of(self, partitions: Iterable[TopicPartition] | None) -> list[Reading]:
        """Of these partitions, which raises NotAssigned, or of all that are read now."""
        if partitions is None:
            return [each for each in self.readings.values() if not each.is_stopped]
        return [self.reading_of(partition) for partition in partitions]

    def begin_request(self, thread: int) -> bool:
        """Whether the last request was interrupted, by Ctrl-C at any place: what it took was not handed out."""
        was_interrupted, self._is_requested = self._is_requested, True
        self.requester = thread
        return was_interrupted

    def end_request(self) -> None:
        self._is_requested = False

    def readings_wanted_count(self) -> int:
        """The count of partitions that are fetched."""
        return sum(
            reading.question is None and not reading.is_stopped and not reading.is_paused
            for reading in self.readings.values()
        )

    def settle(self) -> HandOut | None:
        """The next message was asked for: what was being handed out is over."""
        hand_out, self._hand_out = self._hand_out, None
        if hand_out is not None and hand_out.reading.hand_out is hand_out:
            hand_out.reading.settle()
        return hand_out

    def next_hand_out(self, until_ns: int) -> HandOut | None:
        """What to hand out next, up to this moment; None when nothing is there.  Raises what prevents it."""
        if self._unreadable is not None:
            raise self._unreadable.error.with_traceback(None)
        hand_out, self._rest = self._rest, None
        if hand_out is None:
            self._raise_what_is_due()
            hand_out = self._next_batch(until_ns)
        if hand_out is None:
            self._raise_what_is_due()
            return None
        hand_out.extend(until_ns)
        self._hand_out = hand_out
        hand_out.reading.begin_hand_out(hand_out)
        return hand_out

    def _raise_what_is_due(self) -> None:
        """What cannot be read of a reading follows all that was fetched of it before."""
        for reading in self._later:
            if not self.prefetched.has(reading):
                self._unreadable = self._later.pop(reading)
                raise self._unreadable.error

    def has_more_of(self, reading: Reading) -> bool:
        """Whether messages of it were fetched that are not handed out yet, or in hand."""
        return self.prefetched.has(reading) or reading.hand_out is not None or self._rest_is_of(reading)

    def _rest_is_of(self, reading: Reading) -> bool:
        return self._rest is not None and self._rest.reading is reading

    def _next_batch(self, until_ns: int) -> HandOut | None:
        found = self.prefetched.next_batch()
        if found is None:
            return None
        reading, batch, high_watermark, aborted = found
        position = reading.read_end
        header = read_header(batch)
        next_offset = header.next_offset
        if aborted is not None and _is_aborted(aborted, header, batch):
            runs: Iterator[MessageRun] = iter(())
        else:
            runs = self._open_batch(reading.partition, batch, position)
            self.batches_count += 1
            self.batches_bytes += len(batch)
            if not header.is_control:
                self.messages_count += header.records_count
        is_known = is_end_known(batch, next_offset, high_watermark)
        return HandOut(reading, runs, position, max(position, next_offset), until_ns, is_end_known=is_known)

    def cut(self, hand_out: HandOut) -> None:
        """It ends before the message that was taken last, which is kept if its reading continues."""
        hand_out.cut()
        run = hand_out.run
        if hand_out.is_current and run is not None:
            self._rest = hand_out.rest(run.from_last(), hand_out.passed_end)

    def on_poison(self, hand_out: HandOut, error: PoisonMessage, *, is_of_one_message: bool) -> bool:
        """Handing out met what cannot be read; False when that does not matter any more."""
        self._hand_out = None
        reading = hand_out.reading
        if not hand_out.is_current:
            hand_out.cut()
            if reading.hand_out is hand_out:
                reading.settle()
            return False
        reading.settle_at(error.offset)
        rest = None
        if is_of_one_message and hand_out.run is not None:
            rest = hand_out.rest(hand_out.run.rest(), error.offset + 1)
        next_offset = hand_out.next_offset if hand_out.is_end_known else None
        self._unreadable = _Unreadable(reading, error, rest, rest.start if rest else next_offset, False)
        return True

    def on_unreadable(self, reading: Reading, error: OttlaError, next_offset: int | None) -> None:
        """Nothing more comes of this reading until it is stepped over, or sought elsewhere."""
        self._later[reading] = _Unreadable(reading, error, None, next_offset, True)
        self.ring()

    def skip(self) -> tuple[Reading, int | None]:
        """Step over what cannot be read: gives its reading, and the offset to fetch from, if nothing was fetched.

        Raises NotAssigned when there is nothing to step over.
        """
        unreadable = self._unreadable
        if unreadable is None or unreadable.next_offset is None:
            raise NotAssigned(_why_not(unreadable), hint="skip() follows a PoisonMessage; seek() reads on elsewhere")
        self._unreadable = None
        self._rest = unreadable.rest
        unreadable.reading.settle_at(unreadable.next_offset)
        return unreadable.reading, unreadable.next_offset if unreadable.ends_fetches else None

    def drop(self, reading: Reading) -> None:
        """Hand out nothing that was fetched of this reading."""
        self.prefetched.drop(reading)
        self._later.pop(reading, None)
        if self._rest_is_of(reading):
            self._rest = None
        if self._unreadable is not None and self._unreadable.reading is reading:
            self._unreadable = None
