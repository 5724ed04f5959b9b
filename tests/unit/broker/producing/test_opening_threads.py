"""Where batches are opened: on the loop, or in one of two threads, in turn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ottla.broker.net.limits import (
    OPENED_BATCH_BYTES_MAX,
    OPENED_ON_LOOP_BYTES_MAX,
    OPENED_ON_LOOP_PLAIN_BYTES_MAX,
    OPENED_QUICKLY_BYTES_MAX,
    WAITING_BATCH_MS_MAX,
)
from ottla.broker.partitions.topic_configs import opening_of
from ottla.broker.producing import opening_threads
from ottla.broker.producing.batch_opening import OpeningTerms
from ottla.broker.producing.opening_threads import BatchOpener, Opened, OpensOffLoop
from ottla.model.error_code import ErrorCode
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER
from ottla.records.record import Record, decode_batch
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock

NOW_MS = 1_000_000
CHECKED = LogConfig(record_validation="all")
NOISE = random.Random(1).randbytes(OPENED_ON_LOOP_BYTES_MAX)


class Waiting:
    """A connection, as far as the opener knows it."""

    def __init__(self) -> None:
        self.is_closed = False
        self._on_close: Callable[[], None] | None = None

    def watch_close(self, on_close: Callable[[], None]) -> None:
        self._on_close = on_close

    def unwatch_close(self) -> None:
        self._on_close = None

    def close(self) -> None:
        self.is_closed = True
        if self._on_close is not None:
            self._on_close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opener(clock: FakeClock) -> Iterator[BatchOpener]:
    made = BatchOpener(clock)
    yield made
    made.close()


def one(value: bytes, codec: Codec = Codec.ZSTD) -> bytearray:
    return build_batch([Record(0, NOW_MS, b"k", value)], codec)


def now(opener: BatchOpener, batch: bytearray, config: LogConfig = CHECKED) -> memoryview | None:
    opening = opening_of(config)
    assert opening is not None
    terms = OpeningTerms(opening, 1 << 20, NOW_MS, "orders-0")
    return opener.open_now(memoryview(batch), HEADER.unpack_from(batch), terms)


def job(opener: BatchOpener, batch: bytearray, config: LogConfig = CHECKED) -> OpensOffLoop:
    with pytest.raises(OpensOffLoop) as raised:
        now(opener, batch, config)
    return raised.value


def code(opened: Opened) -> ErrorCode:
    return ErrorCode.NONE if opened.refusal is None else opened.refusal[0]


def test_small_batches_are_opened_on_the_loop(opener: BatchOpener) -> None:
    assert now(opener, one(b"value")) is None
    made = now(opener, one(b"value"), LogConfig(compression_type="lz4"))
    assert made is not None
    assert decode_batch(made) == decode_batch(memoryview(one(b"value")))


@pytest.mark.parametrize(
    ("value", "codec", "config"),
    [
        (NOISE, Codec.ZSTD, CHECKED),
        (bytes(OPENED_ON_LOOP_PLAIN_BYTES_MAX), Codec.ZSTD, CHECKED),
        (bytes(OPENED_ON_LOOP_PLAIN_BYTES_MAX), Codec.GZIP, LogConfig(compression_type="lz4")),
        (NOISE, Codec.NONE, LogConfig(compression_type="gzip")),
        (b"value", Codec.NONE, LogConfig(compression_type="zstd", compression_zstd_level=22)),
        (bytes(1 << 20), Codec.NONE, LogConfig(message_timestamp_before_max_ms=1)),
    ],
    ids=["large", "of much", "of much, compressed again", "plain, compressed", "at a high level", "walked"],
)
async def test_others_are_opened_in_a_thread(
    opener: BatchOpener, value: bytes, codec: Codec, config: LogConfig
) -> None:
    batch = one(value, codec)
    opened = await opener.open(job(opener, batch, config), Waiting(), 1_000)
    assert opened.refusal is None
    made = memoryview(batch) if opened.batch is None else opened.batch
    assert decode_batch(made) == decode_batch(memoryview(batch))


async def test_batch_that_holds_too_much_is_refused(opener: BatchOpener) -> None:
    value = bytes(OPENED_BATCH_BYTES_MAX + 1)
    opened = await opener.open(job(opener, one(value)), Waiting(), 1_000)
    assert code(opened) is ErrorCode.MESSAGE_TOO_LARGE
    assert opened.refusal is not None
    assert f"more than {OPENED_BATCH_BYTES_MAX} bytes" in opened.refusal[1].message


async def test_small_batch_does_not_wait_for_a_large_one(opener: BatchOpener) -> None:
    await opener._slow.take(1, Waiting())
    large = asyncio.create_task(opener.open(job(opener, one(bytes(OPENED_QUICKLY_BYTES_MAX + 1))), Waiting(), 1_000))
    assert code(await opener.open(job(opener, one(NOISE)), Waiting(), 1_000)) is ErrorCode.NONE
    assert not large.done()
    opener._slow.give()
    assert code(await large) is ErrorCode.NONE


async def test_batches_are_opened_in_the_order_of_their_arrival(opener: BatchOpener) -> None:
    await opener._quick.take(1, Waiting())
    order: list[int] = []

    async def open_one(number: int) -> None:
        await opener.open(job(opener, one(NOISE)), Waiting(), 1_000)
        order.append(number)

    tasks = []
    for number in range(5):
        tasks.append(asyncio.create_task(open_one(number)))
        await asyncio.sleep(0)
    opener._quick.give()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("timeout_ms", "waited_ms"), [(500, 501), (2**31 - 1, WAITING_BATCH_MS_MAX + 1)])
async def test_batch_that_waited_too_long_is_not_opened(
    opener: BatchOpener, clock: FakeClock, timeout_ms: int, waited_ms: int
) -> None:
    await opener._quick.take(1, Waiting())
    waits = asyncio.create_task(opener.open(job(opener, one(NOISE)), Waiting(), timeout_ms))
    await asyncio.sleep(0)
    clock.advance(waited_ms)
    opener._quick.give()
    assert code(await waits) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_waiting_batch_releases_its_bytes_when_its_connection_closes(opener: BatchOpener) -> None:
    await opener._quick.take(1, Waiting())
    gone, patient = Waiting(), Waiting()
    batch = one(NOISE)
    first = asyncio.create_task(opener.open(job(opener, batch), gone, 1_000))
    second = asyncio.create_task(opener.open(job(opener, batch), patient, 1_000))
    await asyncio.sleep(0)
    assert opener._quick._waiting_bytes == 2 * len(batch)
    gone.close()
    assert code(await first) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert opener._quick._waiting_bytes == len(batch)
    opener._quick.give()
    assert code(await second) is ErrorCode.NONE
    assert opener._quick._waiting_bytes == 0
    assert not opener._quick._is_taken


async def test_request_that_is_cancelled_as_its_turn_comes_passes_it_on(opener: BatchOpener) -> None:
    lane = opener._quick
    await lane.take(1, Waiting())
    cancelled = asyncio.create_task(lane.take(1, Waiting()))
    await asyncio.sleep(0)
    lane.give()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not lane._is_taken


async def test_package_without_the_compiled_walk_limits_the_records(
    opener: BatchOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening_threads, "COMPILED", None)
    monkeypatch.setattr(opening_threads, "WALKED_IN_PYTHON_RECORDS_MAX", 300)
    config = replace(CHECKED, cleanup_policy="compact")
    made = [build_batch([Record(0, NOW_MS, b"k", b"")] * count, Codec.ZSTD) for count in (300, 301)]
    opened = [await opener.open(job(opener, batch, config), Waiting(), 1_000) for batch in made]
    assert [code(each) for each in opened] == [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]
    assert opened[1].refusal is not None
    assert "301 records, 300 are allowed" in opened[1].refusal[1].message
