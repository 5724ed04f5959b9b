"""The batches that a read_committed reader skips (KIP-98): those of aborted transactions.

A fetch response lists the aborted transactions in its range, each by producer and first offset; one ends at its
producer's abort marker, a control batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from ottla.client.fetching.fetch import AbortedTransaction
from ottla.records.header import BatchHeader
from ottla.records.record import decode_batch

# The key of a control record: version, type.
_MARKER_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


class AbortedBatches:
    """Checks every batch of one fetch, in offset order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # The next one to begin is last in the list.
        self._coming = sorted(transactions, key=lambda transaction: -transaction.first_offset)
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether its records must not be read.  Raises `CorruptBatch` for an invalid control batch."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._producers and _is_abort_marker(batch):
                self._producers.remove(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._producers


def _is_abort_marker(batch: memoryview) -> bool:
    records = decode_batch(batch)
    if not records or records[0].key is None or len(records[0].key) < _MARKER_KEY.size:
        return False
    return bool(_MARKER_KEY.unpack_from(records[0].key)[1] == _ABORT)
