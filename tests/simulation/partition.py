"""One partition on one simulated broker: a shell like the broker's partition, over the product's `Replica`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordination.topics_view import PartitionNode
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import ChangeResult
from ottla.replication.following import FollowerAction
from ottla.replication.leadership import InSyncChange
from ottla.replication.replica import Replica, Role
from tests.simulation.scale import (
    FETCH_BACKOFF_MS,
    FETCH_RECORDS_MAX,
    FETCH_TIMEOUT_MS,
    FETCH_WAIT_MS,
    FLUSH_MS,
    LAG_CHECK_MS,
    LAG_TIME_MAX_MS,
    PRODUCE_TIMEOUT_MS,
)
from tests.simulation.values import PartitionLog, Value

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

ACKS_ALL = -1
ACKS_LEADER = 1

# The response to a producer.
ACKNOWLEDGED = "acknowledged"
NOT_LEADER = "not leader"
NOT_ENOUGH = "not enough replicas"
NOT_ENOUGH_AFTER_APPEND = "not enough replicas after append"
TIMED_OUT = "timed out"
OUT_OF_ORDER = "out of order"
NO_ROOM = "no room"


class Send(NamedTuple):
    """One attempt of a producer."""

    attempt: int
    value: Value
    acks: int
    is_idempotent: bool
    replied: Callable[[int, str, int], None]


class Waiting(NamedTuple):
    """A send that is appended but not acknowledged."""

    required_end: int
    send: Send
    offset: int


class Answer(NamedTuple):
    """A leader's answer to a fetch; its records with their epochs."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: list[tuple[int, Value]]


class ParkedFetch(NamedTuple):
    """A follower's fetch that waits for an append."""

    node_id: NodeId
    life: int
    request_id: int
    fetch_offset: int
    token: int


class SimulatedPartition:
    """A replica in one process' life."""

    def __init__(self, broker: SimulatedBroker, index: int, log: PartitionLog, high_watermark: int) -> None:
        self.broker = broker
        self.simulation = broker.simulation
        self.index = index
        self.log = log
        self.replica: Replica = self.simulation.kinds.replica(broker.node_id, log, high_watermark, LAG_TIME_MAX_MS)
        self.node: PartitionNode | None = None
        self.is_usable = True
        self.is_writing = False
        self._waiting: list[Waiting] = []
        self._parked_fetches: list[ParkedFetch] = []
        self._is_flushing = False
        self._is_fetching = False
        self._fetch_token = 0
        # Fetches up to this one are from a former replica, whose log is dropped: their responses are ignored.
        self._dropped_token = 0
        # Up to here its records were compared with the committed ones.
        self.checked_end = 0
        # The version whose election another replica should write first, and the one that it should have written.
        self.patience_version = -1
        self.impatient_version = -1

    def on_view(self, node: PartitionNode, live: Mapping[NodeId, int], min_in_sync: int) -> None:
        """The broker's view of the tree; a state older than the known one is ignored."""
        if self.node is not None and node.state_version < self.node.state_version:
            node = self.node
        self.node = node
        replica = self.replica
        was_epoch, was_leader, had_min = replica.leader_epoch, replica.leader, replica.has_min_in_sync
        own_epoch = self.broker.broker_epoch if self.is_usable else -1
        replica.on_live(live)
        replica.on_state(
            node.replicas,
            node.state,
            node.state_version,
            min(min_in_sync, node.replicas_count_min),
            live,
            own_epoch,
            self.broker.now_ms(),
        )
        if (replica.leader_epoch, replica.leader) != (was_epoch, was_leader):
            self._on_role()
        if had_min and not replica.has_min_in_sync:
            self._answer_all(NOT_ENOUGH_AFTER_APPEND if replica.role is Role.LEADER else NOT_LEADER)
        self.on_high_watermark()
        if self._is_elsewhere(node):
            self._drop()

    def _is_elsewhere(self, node: PartitionNode) -> bool:
        """Whether this broker has no replica any more, and an assigned one has every committed record."""
        state, own = node.state, self.broker.node_id
        members = {member.node_id for member in (*state.in_sync, *state.eligible)}
        return (
            own not in node.replicas and own not in members and not set(node.replicas).isdisjoint(state.in_sync_nodes())
        )

    def _drop(self) -> None:
        """Delete the log.  A replica that is assigned again starts empty, in the same life of its broker."""
        if not self.is_usable or not (self.log.log_end_offset or self.log.epochs):
            return
        self.simulation.trace("broker %d: drops its log of partition %d", self.broker.node_id, self.index)
        self.log.reset_to(0)
        self.log.appending_epoch = -1
        self._answer_all(NOT_LEADER)
        self._parked_fetches.clear()
        self._fetch_token += 1
        self._dropped_token = self._fetch_token
        self._is_fetching = False
        self.checked_end = 0
        self.replica = self.simulation.kinds.replica(self.broker.node_id, self.log, 0, LAG_TIME_MAX_MS)

    def _on_role(self) -> None:
        replica = self.replica
        self._answer_all(NOT_LEADER)
        self._parked_fetches.clear()
        self._fetch_token += 1
        self._is_fetching = False
        self.simulation.trace(
            "broker %d: partition %d led by %d in epoch %d, log end %d, high watermark %d",
            self.broker.node_id,
            self.index,
            replica.leader,
            replica.leader_epoch,
            self.log.log_end_offset,
            replica.high_watermark,
        )
        if replica.role is Role.LEADER:
            self.simulation.checks.on_leader(self)
            self.broker.after(LAG_CHECK_MS, self._check_lag, replica.leader_epoch)
        else:
            self.fetch()

    def _check_lag(self, epoch: int) -> None:
        if self.replica.role is Role.LEADER and self.replica.leader_epoch == epoch:
            self.propose()
            self.broker.after(LAG_CHECK_MS, self._check_lag, epoch)

    def propose(self) -> None:
        """Write the change of the in-sync set that is due."""
        if not self.broker.is_registered():
            return
        change = self.replica.propose(self.broker.now_ms())
        if change is not None:
            self.simulation.trace(
                "broker %d: partition %d proposes %s over version %d",
                self.broker.node_id,
                self.index,
                change.state,
                change.expected_version,
            )
            self.broker.write(self.index, change.expected_version, change.state, self._on_proposed, change)

    def _on_proposed(self, outcome: ChangeResult, version: int, change: InSyncChange) -> None:
        had_min = self.replica.has_min_in_sync
        self.replica.on_outcome(change, outcome, version, self.broker.now_ms())
        if had_min and not self.replica.has_min_in_sync:
            self._answer_all(NOT_ENOUGH_AFTER_APPEND)
        self.on_high_watermark()

    def produce(self, send: Send) -> None:
        """A producer's request."""
        replica, log = self.replica, self.log
        self.simulation.checks.on_request()
        if replica.role is not Role.LEADER or not self.broker.has_lease():
            self._answer(send, NOT_LEADER, -1)
            return
        if send.acks == ACKS_ALL and not replica.has_min_in_sync:
            self._answer(send, NOT_ENOUGH, -1)
            return
        offset = log.offset_of(send.value) if send.is_idempotent else None
        if offset is None:
            if send.is_idempotent and not log.accepts(send.value):
                self._answer(send, OUT_OF_ORDER, -1)
                return
            if self.broker.is_disk_full:
                self._answer(send, NO_ROOM, -1)
                return
            offset = log.append(send.value)
            self.simulation.checks.on_append(self, offset)
            if log.is_stable_at_once:
                self._on_stable()
            self._wake_fetches()
        self._waiting.append(Waiting(offset + 1, send, offset))
        self.broker.after(PRODUCE_TIMEOUT_MS, self._expire, send)
        self._release()
        self.flush()

    def _release(self) -> None:
        """Answer the fulfilled requests, while this broker's session cannot have ended."""
        if not self._waiting:
            return
        stable_end, high_watermark = self.log.stable_end, self.replica.high_watermark
        kept: list[Waiting] = []
        for waiting in self._waiting:
            if waiting.required_end > (high_watermark if waiting.send.acks == ACKS_ALL else stable_end):
                kept.append(waiting)
            elif self.broker.has_lease():
                self.simulation.checks.on_acknowledged(self, waiting)
                self._answer(waiting.send, ACKNOWLEDGED, waiting.offset)
            else:
                self._answer(waiting.send, NOT_LEADER, -1)
        self._waiting = kept

    def _expire(self, send: Send) -> None:
        kept = [waiting for waiting in self._waiting if waiting.send is not send]
        if len(kept) != len(self._waiting):
            self._waiting = kept
            self._answer(send, TIMED_OUT, -1)

    def _answer_all(self, answer: str) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._answer(each.send, answer, -1)

    def _answer(self, send: Send, answer: str, offset: int) -> None:
        self.simulation.checks.on_answer()
        self.simulation.network.send(self.broker.node_id, -1, send.replied, send.attempt, answer, offset)

    def forget_waiting(self) -> int:
        """The process ends: how many requests it never answered."""
        count, self._waiting = len(self._waiting), []
        return count

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def on_fetch(
        self,
        node_id: NodeId,
        life: int,
        broker_epoch: int,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        request_id: int,
        token: int,
    ) -> None:
        """A follower's request."""
        replica = self.replica
        before = replica.high_watermark
        verdict = replica.on_fetch(
            node_id, broker_epoch, leader_epoch, fetch_offset, last_fetched_epoch, self.broker.now_ms()
        )
        if replica.high_watermark != before:
            self.on_high_watermark()
        if verdict.may_join:
            self.propose()
        fetch = ParkedFetch(node_id, life, request_id, fetch_offset, token)
        if verdict.error_code or verdict.diverging is not None:
            self._reply(fetch, verdict.error_code, verdict.diverging)
        elif fetch_offset < self.log.log_end_offset:
            self._reply(fetch, 0, None)
        else:
            self._parked_fetches.append(fetch)
            self.broker.after(FETCH_WAIT_MS, self._end_wait, fetch)

    def _end_wait(self, fetch: ParkedFetch) -> None:
        if fetch in self._parked_fetches:
            self._parked_fetches.remove(fetch)
            self._reply(fetch, 0, None)

    def _wake_fetches(self) -> None:
        parked, self._parked_fetches = self._parked_fetches, []
        for fetch in parked:
            self._reply(fetch, 0, None)

    def _reply(self, fetch: ParkedFetch, error_code: int, diverging: tuple[int, int] | None) -> None:
        log = self.log
        records: list[tuple[int, Value]] = []
        if not error_code and diverging is None and fetch.fetch_offset >= log.log_start_offset:
            end_offset = min(log.log_end_offset, fetch.fetch_offset + FETCH_RECORDS_MAX)
            records = [(log.epoch_of(each), log.record(each)) for each in range(fetch.fetch_offset, end_offset)]
        follower = self.simulation.broker(fetch.node_id)
        self.simulation.network.send(
            self.broker.node_id,
            fetch.node_id,
            follower.deliver,
            fetch.life,
            SimulatedPartition.on_response,
            self.index,
            fetch.request_id,
            fetch.token,
            Answer(error_code, self.replica.high_watermark, log.log_start_offset, diverging, records),
        )

    def fetch(self) -> None:
        """Send the next fetch, unless one is under way or there is none to send."""
        if self._is_fetching or not self.is_usable or not self.broker.is_registered():
            return
        if self.node is None or self.broker.node_id not in self.node.replicas:
            return
        if self.broker.gives_way and self.broker.node_id not in self.node.state.in_sync_nodes():
            return
        fetch = self.replica.next_fetch()
        if fetch is None:
            self.flush()
            return
        self._is_fetching = True
        self._fetch_token += 1
        leader = self.simulation.broker(fetch.leader)
        self.simulation.network.send(
            self.broker.node_id,
            fetch.leader,
            leader.deliver,
            leader.life,
            SimulatedPartition.on_fetch,
            self.index,
            self.broker.node_id,
            self.broker.life,
            self.broker.broker_epoch,
            fetch.leader_epoch,
            fetch.fetch_offset,
            fetch.last_fetched_epoch,
            fetch.request_id,
            self._fetch_token,
        )
        self.broker.after(FETCH_TIMEOUT_MS, self._fetch_again, self._fetch_token)

    def _fetch_again(self, token: int) -> None:
        if token == self._fetch_token:
            self._is_fetching = False
            self.fetch()

    def on_response(self, request_id: int, token: int, answer: Answer) -> None:
        """The leader's answer, or an earlier one's late copy."""
        if not self.is_usable or (answer.records and self.broker.is_disk_full) or token <= self._dropped_token:
            return
        replica, log = self.replica, self.log
        ends = (log.log_end_offset, replica.high_watermark)
        step = replica.on_response(request_id, answer)
        action = step.action
        if action is FollowerAction.APPEND:
            for epoch, value in answer.records:
                log.append_record(epoch, value)
            if log.is_stable_at_once:
                self._on_stable()
        elif action is FollowerAction.TRUNCATE:
            log.truncate_to(step.offset)
            replica.on_cut()
            self.simulation.checks.on_truncated(self, *ends)
        elif action is FollowerAction.RESET:
            log.reset_to(step.offset)
            replica.on_reset()
        if action is FollowerAction.APPEND or action is FollowerAction.FETCH:
            log.delete_records_before(min(answer.log_start_offset, replica.high_watermark))
        if replica.high_watermark != ends[1]:
            self.on_high_watermark()
        if token != self._fetch_token:
            return
        self._fetch_token += 1
        self._is_fetching = False
        if action is FollowerAction.BACK_OFF:
            self._fetch_token += 1
            self._is_fetching = True
            self.broker.after(FETCH_BACKOFF_MS, self._fetch_again, self._fetch_token)
        else:
            self.fetch()

    def flush(self) -> None:
        """Flush up to the present end, unless a flush is under way: the next one covers it."""
        log = self.log
        if self._is_flushing or log.flushed_end == log.log_end_offset or self.broker.is_disk_stuck:
            return
        self._is_flushing = True
        chance = self.simulation.chance
        factor = 30 if log.is_stable_at_once else 1
        delay_ms = FLUSH_MS * factor * (0.2 + 2 * chance.random())
        self.broker.after(delay_ms, self._end_flush, log.log_end_offset, log.truncations_count)

    def _end_flush(self, end_offset: int, truncations_count: int) -> None:
        self._is_flushing = False
        if not self.is_usable:
            return
        log = self.log
        if log.truncations_count == truncations_count:
            before = log.stable_end
            log.flush_to(end_offset)
            if log.stable_end != before:
                self._on_stable()
        self.flush()
        if self.replica.role is not Role.LEADER:
            self.fetch()

    def _on_stable(self) -> None:
        before = self.replica.high_watermark
        self.replica.on_stable()
        if self.replica.high_watermark != before:
            self.on_high_watermark()
        else:
            self._release()

    def on_high_watermark(self) -> None:
        """The high watermark may have moved: readers see more records, and producers get responses."""
        self.simulation.checks.on_high_watermark(self)
        self._release()

    def fail(self) -> None:
        """The log cannot be written any more: it is neither led nor followed until a restart."""
        self.is_usable = False
        self._answer_all(NOT_LEADER)
        self._parked_fetches.clear()
