from __future__ import annotations

from ottla.client.fetching.fetch_requests import AbortedBatches, AbortedTransaction
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.arrow.decoder import Decoder


def batch(offset: int, producer_id: int, value: bytes, *, is_transactional: bool = True) -> bytes:
    record = Record(0, 0, None, value)
    return bytes(build_batch([record], producer_id=producer_id, base_offset=offset, is_transactional=is_transactional))


def marker(offset: int, producer_id: int, *, is_abort: bool) -> bytes:
    record = Record(0, 0, b"\0\0\0" + (b"\0" if is_abort else b"\1"), b"\0\0\0\0\0\0")
    return bytes(
        build_batch([record], producer_id=producer_id, base_offset=offset, is_transactional=True, is_control=True)
    )


def committed(data: bytes, *aborted: AbortedTransaction, first_offset: int = 0) -> list[bytes]:
    decoder = Decoder("t", 0, ["value"])
    batches = decoder.decode(data, first_offset, aborted=AbortedBatches(aborted))
    return [value for rows in batches for value in rows.column("value").to_pylist()]


def test_interleaved_transactions_are_distinguished_by_producer() -> None:
    data = (
        batch(0, 7, b"7 aborted")
        + batch(1, 8, b"8 committed")
        + batch(2, 9, b"plain", is_transactional=False)
        + marker(3, 7, is_abort=True)
        + batch(4, 7, b"7 committed")
        + marker(5, 8, is_abort=False)
        + marker(6, 7, is_abort=False)
    )
    assert committed(data, AbortedTransaction(7, 0)) == [b"8 committed", b"plain", b"7 committed"]


def test_a_second_aborted_transaction_of_a_producer_is_left_out_too() -> None:
    data = (
        batch(0, 7, b"a")
        + marker(1, 7, is_abort=True)
        + batch(2, 7, b"b")
        + marker(3, 7, is_abort=False)
        + batch(4, 7, b"c")
        + marker(5, 7, is_abort=True)
    )
    assert committed(data, AbortedTransaction(7, 4), AbortedTransaction(7, 0)) == [b"b"]


def test_a_transaction_that_began_before_the_fetch_is_left_out() -> None:
    data = batch(50, 7, b"tail of it") + marker(51, 7, is_abort=True) + batch(52, 7, b"next")
    assert committed(data, AbortedTransaction(7, 10), first_offset=50) == [b"next"]
