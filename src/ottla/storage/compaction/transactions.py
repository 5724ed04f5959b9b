"""Finds the batches of aborted transactions in an imported log, and the markers without remaining data.

Batches must be passed in offset order.  A marker is needed as long as a batch of its transaction was passed.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from typing import Final

from ottla.storage.producers.aborted_transactions import AbortedTransaction

# The key of a control record: int16 version, int16 type.
_CONTROL_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1


class Transactions:
    """One walk over a log from `start_offset` on; `kept_aborted` collects those whose marker is kept."""

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        self._coming = [each for each in aborted if each.last_offset >= start_offset]
        heapq.heapify(self._coming)
        # By producer id: the open aborted transaction, and whether a batch of it was passed.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept_aborted: list[AbortedTransaction] = []

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional batch belongs to an aborted transaction."""
        self._begin_up_to(last_offset)
        open_one = self._aborted.get(producer_id)
        if open_one is None or open_one[0].last_offset < last_offset:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = (open_one[0], True)
        return True

    def is_marker_empty(self, producer_id: int, last_offset: int, control_key: bytes | None) -> bool:
        """Whether nothing of a marker's transaction was passed; None means that the marker's record was removed."""
        self._begin_up_to(last_offset)
        if control_key is None:
            return True
        if len(control_key) < _CONTROL_KEY.size:
            return False
        kind = _CONTROL_KEY.unpack_from(control_key)[1]
        if kind == _ABORT:
            transaction, was_passed = self._aborted.pop(producer_id, (None, False))
            if transaction is not None and was_passed:
                self.kept_aborted.append(transaction)
            return not was_passed
        if kind == _COMMIT:
            was_passed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_passed
        return False

    def drain_kept_aborted(self) -> list[AbortedTransaction]:
        """Those whose markers were passed since the last call."""
        kept, self.kept_aborted = self.kept_aborted, []
        return kept

    def _begin_up_to(self, last_offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= last_offset:
            transaction = heapq.heappop(self._coming)
            self._aborted[transaction.producer_id] = (transaction, False)
