"""`ottla` with a fault planted in its replication: a run must detect it, or its clean result proves nothing.

python -m tests.cluster.mutated_broker MUTATION serve ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.cli import main
from ottla.model.identifiers import NodeId
from ottla.replication.leadership import Leadership
from ottla.replication.replica import FetchVerdict, Replica
from ottla.storage.log.flush import FlushPlan
from tests.history.report import Anomaly

_NO_EPOCH: Final = -1
LOSSES: Final = frozenset({Anomaly.LOST_WRITE, Anomaly.UNSEEN})


def flush_nothing() -> None:
    """Records that are acknowledged as durable are in the page cache only."""
    FlushPlan.execute = lambda *_: None  # type: ignore[method-assign]


def nothing() -> None:
    """The unchanged product, with another setting."""


def forget_followers() -> None:
    """The high watermark follows the leader's own end: acks=all acknowledges the records of its own log."""
    Leadership.end_of_in_sync = lambda _, own_end: own_end  # type: ignore[method-assign, assignment]


def forget_epochs() -> None:
    """A follower truncates to the leader's log end without comparing epochs: logs are compared by length alone."""
    on_fetch = Replica.on_fetch

    def on_fetch_by_length(
        replica: Replica,
        node_id: NodeId,
        broker_epoch: int,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        now_ms: int,
        log_start_offset: int,
    ) -> FetchVerdict:
        return on_fetch(replica, node_id, broker_epoch, leader_epoch, fetch_offset, _NO_EPOCH, now_ms, log_start_offset)

    Replica.on_fetch = on_fetch_by_length  # type: ignore[assignment, method-assign]


class Planted(NamedTuple):
    """A mutation, the faults injected with it, and the anomalies of which the checker must report at least one."""

    plant: Callable[[], None]
    plan: Sequence[str]
    expected: frozenset[Anomaly]
    settings: Mapping[str, str] = MappingProxyType({})


MUTATIONS: Final[Mapping[str, Planted]] = {
    "flush-nothing": Planted(flush_nothing, ["power-cut-all"], LOSSES),
    "flush-os": Planted(nothing, ["power-cut-all-unflushed"], LOSSES, {"log.flush.policy": "os"}),
    "forget-followers": Planted(forget_followers, ["kill-leader"] * 6, LOSSES),
    "forget-epochs": Planted(
        forget_epochs, ["kill-leader", "leader-alone"] * 3, LOSSES | {Anomaly.INCONSISTENT_OFFSET, Anomaly.DUPLICATE}
    ),
}

if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)].plant()
    main()
