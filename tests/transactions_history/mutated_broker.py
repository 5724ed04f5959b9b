"""`ottla` with a fault planted in its transactions: the checker must detect each of them from what clients recorded.

python -m tests.transactions_history.mutated_broker MUTATION serve ...

The simulation finds many more, in less time (`./dev sim --transactions --mutants`): these show that a broker's fault is
seen through clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, NamedTuple

from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.cli import main
from ottla.groups.group_table import GroupTable
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.storage.log.log_aborted import LogAborted
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.transactions import decisions
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.transaction import TransactionState
from tests.transactions_history.report import Anomaly

# The number of those that are written before: the run is under way.
_LOST_MARKER: Final = 30


def show_what_is_open() -> None:
    """Readers of committed records get all below the high watermark."""
    LogTransactions.last_stable_offset = (  # type: ignore[method-assign]
        lambda _, high_watermark, __: high_watermark  # type: ignore[assignment]
    )


def show_what_was_aborted() -> None:
    """Fetches list no aborted transactions."""
    LogAborted.in_run = lambda *_: []  # type: ignore[method-assign]


def commit_aborts() -> None:
    """An abort has the outcome of a commit."""
    decisions._prepared = lambda command: TransactionState.PREPARE_COMMIT


def show_pending_offsets() -> None:
    """The offsets of a transaction take effect before its end."""
    replay = GroupTable.replay

    def replay_at_once(table: GroupTable, key: bytes, value: bytes | None, _: int = 0) -> None:
        replay(table, key, value)

    GroupTable.replay = replay_at_once  # type: ignore[assignment, method-assign]


def lose_a_marker() -> None:
    """Each process reports one marker as written that is not: its partition stays open."""
    write = MarkerWriter.write
    numbers = count()

    def write_others(
        writer: MarkerWriter, partition: TopicPartition, markers: EndMarkers, on_done: Callable[[ErrorCode], None]
    ) -> None:
        if partition.topic != OFFSETS_TOPIC and next(numbers) == _LOST_MARKER:
            on_done(ErrorCode.NONE)
        else:
            write(writer, partition, markers, on_done)

    MarkerWriter.write = write_others  # type: ignore[assignment, method-assign]


class Planted(NamedTuple):
    """A mutation, and the anomalies of which the checker must report at least one."""

    plant: Callable[[], None]
    expected: frozenset[Anomaly]


MUTATIONS: Final[Mapping[str, Planted]] = {
    "show-what-is-open": Planted(
        show_what_is_open, frozenset({Anomaly.ABORTED_READ, Anomaly.VANISHED, Anomaly.INTERMEDIATE})
    ),
    "show-what-was-aborted": Planted(show_what_was_aborted, frozenset({Anomaly.ABORTED_READ})),
    "commit-aborts": Planted(commit_aborts, frozenset({Anomaly.ABORTED_READ, Anomaly.INPUT_TWICE})),
    "show-pending-offsets": Planted(show_pending_offsets, frozenset({Anomaly.INPUT_LOST, Anomaly.OFFSET_OF_NO_COMMIT})),
    "lose-a-marker": Planted(lose_a_marker, frozenset({Anomaly.STUCK})),
}

if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)].plant()
    main()
