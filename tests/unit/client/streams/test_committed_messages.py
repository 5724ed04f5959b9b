"""Batches of transactions in a stream of committed messages: markers and aborted ones are passed over."""

from __future__ import annotations

from ottla.client.fetching.fetch_requests import AbortedTransaction, FetchedPartition, committed_batches
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.end_marker import EndMarker, build_end_marker
from ottla.records.header import BASE_OFFSET
from ottla.records.record import Record, decode_batch
from tests.unit.client.streams.scripted import Desk

T0 = TopicPartition("t", 0)
OURS, THEIRS = 7, 8


def data(offset: int, producer_id: int, *values: bytes) -> bytes:
    records = [Record(0, 1_000, None, value) for value in values]
    return bytes(build_batch(records, base_offset=offset, producer_id=producer_id, is_transactional=True))


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    batch = build_end_marker(EndMarker(commits, 0), producer_id, 0, 1_000)
    BASE_OFFSET.pack_into(batch, 0, offset)
    return bytes(batch)


# Two transactions at the same time; the aborted one's producer commits another one after it.
LOG = b"".join(
    [
        data(0, OURS, b"a", b"b"),
        data(2, THEIRS, b"never"),
        data(3, OURS, b"c"),
        marker(4, THEIRS, commits=False),
        marker(5, OURS, commits=True),
        data(6, THEIRS, b"d"),
        marker(7, THEIRS, commits=True),
    ]
)


def fetched(aborted: list[AbortedTransaction]) -> FetchedPartition:
    return FetchedPartition(T0, 0, 8, 8, 8, 0, memoryview(LOG), aborted)


def test_batches_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    kept = committed_batches(fetched([AbortedTransaction(THEIRS, 2)]))
    values = [record.value for batch in kept for record in decode_batch(batch)]
    assert [value for value in values if value is not None and len(value) == 1] == [b"a", b"b", b"c", b"d"]
    assert b"never" not in values


def test_stream_hands_out_no_message_of_an_aborted_transaction_and_no_marker() -> None:
    it = Desk(enable_auto_commit=False)
    it.start(0, 0)
    it.bring_fetched(fetched([AbortedTransaction(THEIRS, 2)]))
    (stream,) = it.streams
    assert [(message.offset, message.value) for message in stream] == [(0, b"a"), (1, b"b"), (3, b"c"), (6, b"d")]
    assert stream.position(0) == 8, "what was passed over is not read again"


def test_stream_of_uncommitted_messages_hands_all_out() -> None:
    it = Desk()
    it.start(0, 0)
    it.bring_fetched(fetched([]))
    assert [message.value for message in it.streams[0]] == [b"a", b"b", b"never", b"c", b"d"]
