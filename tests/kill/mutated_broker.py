"""`ottla` with a fault planted in its recovery: the kill test must detect each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from ottla.cli import main
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.recovery import LogRecovery
from ottla.storage.segment.segment import Segment


def forget_producers() -> None:
    """Recovery rebuilds no producer state: retries of stored batches are stored again."""
    LogRecovery._load_producers = lambda *_: None  # type: ignore[method-assign]
    ProducerStates.replay = lambda *_: None  # type: ignore[method-assign]
    LogTransactions.replay = lambda *_: None  # type: ignore[method-assign]


def cut_one_batch_too_far() -> None:
    """Recovery takes the last whole batch for a torn one, and ignores the record of flushed ends."""
    scan = LogRecovery._scan

    def scan_short(recovery: LogRecovery, segment: Segment) -> str | None:
        problem = scan(recovery, segment)
        if segment is recovery._segments[-1] and segment.size_bytes:
            end_offset = recovery._log_end_offset
            recovery._log_end_offset = segment.truncate_to(end_offset - 1)
            return "cut by the mutation"
        return problem

    LogRecovery._scan = scan_short  # type: ignore[method-assign, assignment]
    LogRecovery._refuse_if_flushed = lambda *_: None  # type: ignore[method-assign]


MUTATIONS: Final[Mapping[str, Callable[[], None]]] = {
    "forget-producers": forget_producers,
    "cut-one-batch-too-far": cut_one_batch_too_far,
}

if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)]()
    main()
