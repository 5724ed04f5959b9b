"""Replicas of one partition on brokers 1, 2 and 3, and what tests say of them in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation
from ottla.replication.following import FollowerAction, FollowerStep
from ottla.replication.replica import Replica
from tests.simulation.simulated_log import SimulatedLog

REPLICAS: Final = (NodeId(1), NodeId(2), NodeId(3))
LIVE: Final = {node_id: 10 + node_id for node_id in REPLICAS}
LAG_TIME_MAX_MS: Final = 30_000
Log = SimulatedLog[str]


def member(node_id: int, broker_epoch: int | None = None) -> ReplicaIncarnation:
    return ReplicaIncarnation(NodeId(node_id), 10 + node_id if broker_epoch is None else broker_epoch)


def state_of(
    leader: int, epoch: int, in_sync: tuple[int, ...] = (1, 2, 3), eligible: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(
        NodeId(leader) if leader > 0 else NO_LEADER,
        LeaderEpoch(epoch),
        tuple(member(node_id) for node_id in in_sync),
        tuple(member(node_id) for node_id in eligible),
    )


def log_of(*epochs: int, stable_end: int | None = None) -> Log:
    """A log with a record for each of `epochs`, all stable unless said otherwise."""
    log = Log()
    for epoch in epochs:
        log.append_record(epoch, f"e{epoch}")
    log.flush_to(len(epochs) if stable_end is None else stable_end)
    return log


class Answer(NamedTuple):
    """A leader's answer to a fetch."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: Sequence[str] = ()


class OnePartition:
    """One replica, and calls of it with few arguments.  Times are in ms and begin at 0."""

    def __init__(self, node_id: int = 1, log: Log | None = None, high_watermark: int = 0, min_in_sync: int = 2) -> None:
        self.node_id = node_id
        self.log = Log() if log is None else log
        self.replica = Replica(NodeId(node_id), self.log, high_watermark, LAG_TIME_MAX_MS)
        self.live = dict(LIVE)
        self.replicas: tuple[NodeId, ...] = REPLICAS
        self.min_in_sync = min_in_sync
        self.now_ms = 0

    def see(self, state: PartitionState, version: int, own_broker_epoch: int | None = None) -> None:
        epoch = self.live.get(NodeId(self.node_id), -1) if own_broker_epoch is None else own_broker_epoch
        self.replica.on_state(self.replicas, state, version, self.min_in_sync, self.live, epoch, self.now_ms)
        self.replica.check_invariants()

    def append(self, *values: str, flush: bool = True) -> None:
        for value in values:
            self.log.append(value)
        if flush:
            self.flush()

    def flush(self) -> None:
        self.log.flush()
        self.replica.on_stable()

    def cut(self, step: FollowerStep) -> None:
        """Truncate or reset the log, as the step requires."""
        if step.action is FollowerAction.TRUNCATE:
            self.log.truncate_to(step.offset)
            self.replica.on_cut()
        else:
            assert step.action is FollowerAction.RESET
            self.log.reset_to(step.offset)
            self.replica.on_reset()
        self.replica.check_invariants()

    def fetched_by(
        self,
        node_id: int,
        fetch_offset: int,
        last_fetched_epoch: int | None = None,
        *,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        log_start_offset: int = -1,
    ) -> tuple[int, tuple[int, int] | None, bool]:
        """What the leader answers; by default the follower has the leader's own records up to `fetch_offset`."""
        if last_fetched_epoch is None:
            last_fetched_epoch = self.log.epoch_of(fetch_offset - 1) if fetch_offset else -1
        verdict = self.replica.on_fetch(
            NodeId(node_id),
            self.live[NodeId(node_id)] if broker_epoch is None else broker_epoch,
            self.replica.leader_epoch if leader_epoch is None else leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            self.now_ms,
            log_start_offset,
        )
        self.replica.check_invariants()
        return verdict.error_code, verdict.diverging, verdict.may_join
