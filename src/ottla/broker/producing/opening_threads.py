"""Opens produced batches where they hold up the fewest: small ones on the event loop, others in one of two threads.

A thread opens one batch at a time, so all opened batches together take the memory of one for each thread.  A small
batch does not wait for large ones, and each connection has at most one batch here, in order of arrival: a client that
sends one after another takes turns with the others.  The codecs and the compiled walk release the interpreter's lock,
or hold it for some milliseconds at most.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from ottla.broker.net.limits import (
    COMPRESSED_ON_LOOP_BYTES_MAX,
    OPENED_BATCH_BYTES_MAX,
    OPENED_ON_LOOP_BYTES_MAX,
    OPENED_ON_LOOP_PLAIN_BYTES_MAX,
    OPENED_QUICKLY_BYTES_MAX,
    WAITING_BATCH_MS_MAX,
    WAITING_BATCHES_BYTES_MAX,
    WALKED_IN_PYTHON_ON_LOOP_RECORDS_MAX,
    WALKED_IN_PYTHON_RECORDS_MAX,
    WALKED_ON_LOOP_BYTES_MAX,
)
from ottla.broker.producing.batch_opening import BatchRefused, NoRoom, OpeningTerms, open_batch
from ottla.model.error_code import ErrorCode
from ottla.protocol.produce import RecordErrors
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES, CODEC_MASK
from ottla.records.record_bounds import COMPILED
from ottla.runtime.clock import Clock

# Levels above these take 30 ns a byte and more: 60 ms for what is opened quickly.
_QUICK_LEVELS_MAX: Final = {Codec.LZ4: 9, Codec.ZSTD: 9}
_CLOSED: Final = "the connection closed before the batch was opened"


class OpensOffLoop(Exception):
    """The batch takes too long to open for the event loop: `BatchOpener.open` does it."""

    def __init__(self, batch: memoryview, header: tuple[int, ...], terms: OpeningTerms) -> None:
        super().__init__("the batch is opened in a thread")
        self.batch = batch
        self.header = header
        self.terms = terms


class Opened(NamedTuple):
    """What became of a batch: the arguments of `BatchRefused`, or the batch to append, None for the one that came.

    Not an exception, whose traceback would keep the room that it was opened in, and the connection's buffer.
    """

    terms: OpeningTerms
    batch: memoryview | None = None
    refusal: tuple[ErrorCode, RecordErrors] | None = None


class Closable(Protocol):
    """The connection that waits for its batch."""

    is_closed: bool

    def watch_close(self, on_close: Callable[[], None]) -> None: ...

    def unwatch_close(self) -> None: ...


class BatchOpener:
    """Serves all connections.  Its threads start when they are first needed."""

    __slots__ = ("_clock", "_quick", "_room_on_loop", "_slow")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room_on_loop = memoryview(bytearray(OPENED_ON_LOOP_PLAIN_BYTES_MAX))
        self._quick = _Lane("batches-quick", OPENED_QUICKLY_BYTES_MAX)
        self._slow = _Lane("batches-slow", OPENED_BATCH_BYTES_MAX)

    def open_now(self, batch: memoryview, header: tuple[int, ...], terms: OpeningTerms) -> memoryview | None:
        """See `open_batch`.  Raises `BatchRefused`, or `OpensOffLoop` where it takes long."""
        codec = Codec(header[5] & CODEC_MASK)
        target = terms.opening.target(codec)
        records_bytes = len(batch) - BATCH_OVERHEAD_BYTES
        room = self._room_on_loop
        if target is not codec:
            room = room[:COMPRESSED_ON_LOOP_BYTES_MAX]
            is_short = records_bytes <= COMPRESSED_ON_LOOP_BYTES_MAX and not _is_slow(target, terms.opening.level)
        elif codec is Codec.NONE:
            is_short = records_bytes <= WALKED_ON_LOOP_BYTES_MAX or not terms.opening.walks_always
        else:
            is_short = records_bytes <= OPENED_ON_LOOP_BYTES_MAX
        if COMPILED is None:
            is_short = is_short and header[12] <= WALKED_IN_PYTHON_ON_LOOP_RECORDS_MAX
        if is_short:
            try:
                return open_batch(batch, header, terms, room)
            except NoRoom:
                pass
        raise OpensOffLoop(batch, header, terms)

    async def open(self, job: OpensOffLoop, connection: Closable, timeout_ms: int) -> Opened:
        """Open the batch in a thread.  When `connection` closes while it waits, nothing is done.

        A batch that waits longer than `timeout_ms`, which is the client's, is refused.
        """
        header, terms = job.header, job.terms
        if COMPILED is None and header[12] > WALKED_IN_PYTHON_RECORDS_MAX:
            problem = f"the batch has {header[12]} records, {WALKED_IN_PYTHON_RECORDS_MAX} are allowed in this topic"
            return Opened(terms, refusal=(ErrorCode.MESSAGE_TOO_LARGE, RecordErrors(problem)))
        deadline_ms = self._clock.monotonic_ms() + min(max(timeout_ms, 0), WAITING_BATCH_MS_MAX)
        target = terms.opening.target(Codec(header[5] & CODEC_MASK))
        is_quick = len(job.batch) <= OPENED_QUICKLY_BYTES_MAX and not _is_slow(target, terms.opening.level)
        opened = await self._run(self._quick, job, connection, deadline_ms) if is_quick else None
        if opened is None:
            opened = await self._run(self._slow, job, connection, deadline_ms)
        if opened is None:
            problem = (
                f"the records of the batch take more than {OPENED_BATCH_BYTES_MAX} bytes when they are decompressed"
            )
            opened = Opened(terms, refusal=(ErrorCode.MESSAGE_TOO_LARGE, RecordErrors(problem)))
        return opened

    async def _run(self, lane: _Lane, job: OpensOffLoop, connection: Closable, deadline_ms: int) -> Opened | None:
        """None when the records take more than the lane's room."""
        problem = await lane.take(len(job.batch), connection)
        if problem:
            return _again(job, problem)
        try:
            if connection.is_closed:
                return _again(job, _CLOSED)
            if self._clock.monotonic_ms() > deadline_ms:
                return _again(job, "the batch waited too long to be opened: send it again")
            return await lane.open(job)
        finally:
            lane.give()

    def close(self) -> None:
        """Start no more work.  A batch that is being opened holds up the end of the process, not of the loop."""
        self._quick.close()
        self._slow.close()


class _Lane:
    """A thread, and the batches that wait for it, in order of arrival."""

    __slots__ = ("_is_taken", "_name", "_room_bytes", "_thread", "_waiting", "_waiting_bytes")

    def __init__(self, name: str, room_bytes: int) -> None:
        self._name = name
        self._room_bytes = room_bytes
        self._thread: ThreadPoolExecutor | None = None
        self._is_taken = False
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._waiting_bytes = 0

    async def take(self, size_bytes: int, connection: Closable) -> str:
        """Wait for the thread, which the caller gives back; or the reason why the caller does not get it.

        The wait ends when the connection closes: a waiting batch keeps the bytes of its buffer.
        """
        if not self._is_taken:
            self._is_taken = True
            return ""
        if self._waiting_bytes + size_bytes > WAITING_BATCHES_BYTES_MAX:
            return "too many batches wait to be opened: send it again later"
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def forget() -> None:
            if not waiting.done():
                waiting.set_result(False)

        self._waiting.append(waiting)
        self._waiting_bytes += size_bytes
        connection.watch_close(forget)
        try:
            return "" if await waiting else _CLOSED
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.result():
                self.give()
            raise
        finally:
            connection.unwatch_close()
            self._waiting_bytes -= size_bytes

    def give(self) -> None:
        """Let the next one take the thread."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(True)
                return
        self._is_taken = False

    async def open(self, job: OpensOffLoop) -> Opened | None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
        return await asyncio.get_running_loop().run_in_executor(self._thread, _open, job, self._room_bytes)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _open(job: OpensOffLoop, room_bytes: int) -> Opened | None:
    # Pages of a fresh mapping are zeroed as they are written, without the interpreter's lock; a bytearray's are not.
    room = mmap.mmap(-1, room_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        return Opened(job.terms, open_batch(job.batch, job.header, job.terms, memoryview(room)))
    except NoRoom:
        return None
    except BatchRefused as refusal:
        return Opened(job.terms, refusal=(refusal.error_code, refusal.errors))


def _is_slow(target: Codec, level: int | None) -> bool:
    return level is not None and level > _QUICK_LEVELS_MAX.get(target, level)


def _again(job: OpensOffLoop, problem: str) -> Opened:
    """The error that all clients know as "not appended, try again".  MESSAGE_TOO_LARGE would be final to most."""
    return Opened(job.terms, refusal=(ErrorCode.NOT_ENOUGH_REPLICAS, RecordErrors(problem)))
