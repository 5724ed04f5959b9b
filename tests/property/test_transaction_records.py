"""What a record of `__transaction_state` says is the state that was written: a coordinator applies one without reading
the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.identifiers import TopicPartition
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.transactions.transaction_records import decode_transaction, decode_transaction_key, transaction_record

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(max_size=249)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, (1 << 31) - 1)), max_size=20)
NONE = st.just(frozenset[TopicPartition]())


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    partitions = draw(NONE if state is TransactionState.EMPTY else PARTITIONS)
    return Transaction(
        draw(INT64),
        draw(INT16),
        draw(INT32),
        state,
        partitions,
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT16),
    )


@given(NAMES, transactions())
def test_every_state_is_read_back_as_it_was_written(name: str, transaction: Transaction) -> None:
    record = transaction_record(name, transaction)
    assert decode_transaction_key(record.key) == name
    assert record.value is not None
    assert decode_transaction(record.value) == transaction
