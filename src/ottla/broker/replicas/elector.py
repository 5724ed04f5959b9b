"""This broker's part in elections: after each view of the tree it writes what falls to it.

It reaffirms its place in the in-sync and eligible sets, or leaves them; it writes at once the elections that it wins,
and those of other replicas only if they have not done so after a while.  Every write is a compare-and-set over the
state that the decision was made from (coordination/elections.py), so brokers that decide at the same time are safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ottla.broker.net.limits import MIB
from ottla.broker.replicas.peer_connection import PeerAddress, PeerConnection, PeerError, PeerSecurity
from ottla.broker.replicas.state_writer import Propose
from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.coordination import elections
from ottla.coordination.elections import ElectionRules, departed
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.coordination.tree import Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NodeId, TopicPartition, indexes_by_topic
from ottla.model.partition_state import ChangeOutcome, ChangeResult, PartitionState, ReplicaIncarnation
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload, Timers

log = logging.getLogger(__name__)

# How long the winner of an election has to write it, before the next live replica does; one that is up needs some ms.
ELECTION_PATIENCE_MS: Final = 2_000

# How long another broker has to report whether its logs can be used; one that is up needs some ms.
USABILITY_TIMEOUT_MS: Final = 2_000

# Each attempt but the first follows a change by another broker, or an unknown outcome.
DEPARTURE_ATTEMPTS_MAX: Final = 5
_LOG_DIRS_VERSION: Final = 4
_LOG_DIRS_BYTES_MAX: Final = 64 * MIB


class ReplicaLogs(Protocol):
    """What this broker's log directory says about its logs."""

    def is_complete(self, topic_partition: TopicPartition, broker_epoch: int, *, though_failed: bool = False) -> bool:
        """Whether the log can be used, and holds all that this broker reported under this former broker epoch.

        `though_failed`: also a log that was opened and is read-only now.
        """
        ...

    def is_usable(self, topic_partition: TopicPartition, *, though_stuck: bool = False) -> bool:
        """`though_stuck`: also while the disk is stuck, which passes."""
        ...

    @property
    def gives_way(self) -> bool:
        """Whether the disk is stuck or has been full for some seconds: other replicas should do without this one."""
        ...


class LedReads(Protocol):
    """What consumers read of the partitions that this broker leads."""

    def withhold(self, topic_partition: TopicPartition) -> None:
        """See `Partition.withhold_reads`."""
        ...

    def resume(self, topic_partition: TopicPartition) -> None: ...


class OtherLogs(Protocol):
    """What other brokers say about their logs."""

    async def usable(
        self, node_id: NodeId, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> Collection[TopicPartition] | None:
        """Those of which the broker has a log that can be used; None when it does not answer."""
        ...


class LeaderBalance(NamedTuple):
    """How often the preferred leaders are looked at, and how many others may lead in their place."""

    interval_ms: int
    imbalance_percentage_max: int


class _Postponed(NamedTuple):
    """An election of another replica's, over a state of this version, to be written here after `due_ms`."""

    state_version: int
    due_ms: int


class Elector:
    """`balance` is None when leadership stays where it is."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        logs: ReplicaLogs,
        propose: Propose,
        rules: ElectionRules,
        balance: LeaderBalance | None,
        clock: Clock,
        timers: Timers,
        other_logs: OtherLogs,
        reads: LedReads,
    ) -> None:
        self._lifecycle = lifecycle
        self._logs = logs
        self._other_logs = other_logs
        self._reads = reads
        self._propose = propose
        self._rules = rules
        self._balance = balance
        self._clock = clock
        self._timers = timers
        self._view: TopicsView = NO_TOPICS
        self._live: Mapping[NodeId, int] = MappingProxyType({})
        # The version over which a change was proposed here; nothing more is until the view has a higher one.
        self._proposed: dict[TopicPartition, int] = {}
        self._postponed: dict[TopicPartition, _Postponed] = {}
        # Topics with partitions that no broker may lead now; a changed setting may allow an unclean election.
        self._unled: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._balance_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        # Those that this broker has written, for metrics.
        self.elections_count = 0

    def start(self) -> None:
        """Look at the preferred leaders from time to time from now on."""
        if self._balance is not None:
            self._balance_timer = self._timers.call_later(self._balance.interval_ms / 1000, self._on_balance_timer)

    def stop(self) -> None:
        """Propose nothing more."""
        self._is_stopped = True
        for timer in (self._timer, self._balance_timer):
            if timer is not None:
                timer.cancel()

    def on_view(self, view: TopicsView) -> None:
        """The topics, their settings or the live brokers may have changed, and the logs of this view are made."""
        before, self._view = self._view, view
        live_before, self._live = self._live, self._lifecycle.live
        if live_before != self._live:
            names = list(view.by_name)
        else:
            changed = [name for name, topic in view.by_name.items() if before.by_name.get(name) is not topic]
            names = list(dict.fromkeys([*changed, *self._unled]))
        if before is not view:
            self._forget_deleted(before)
        self._look_at(names)

    def _forget_deleted(self, before: TopicsView) -> None:
        """What was decided over states that are gone.  Those of a topic that was recreated start with version 0."""
        view = self._view
        anew = {
            name
            for name, topic in view.by_name.items()
            if (former := before.by_name.get(name)) is not None and former.topic_id != topic.topic_id
        }
        for kept in (self._proposed, self._postponed):
            for each in [each for each in kept if each.topic in anew or view.partition(each) is None]:
                del kept[each]

    def on_logs_changed(self) -> None:
        """All logs of this broker became unusable, or usable again: it leaves the sets in which others remain."""
        self._look_at(self._view.by_name)

    def on_log_failed(self, topic_partition: TopicPartition) -> None:
        """A log of this broker is unusable: it leaves the sets if others remain.  May be called repeatedly."""
        self._decide_again(topic_partition)

    def on_leader_refused(self, node_id: NodeId) -> None:
        """The process of this broker is gone (`RefusedLeaders`), and its registration ends with its session.

        The elections that this broker wins without it are held now.  Should it be alive after all, it learns from the
        tree that it leads no more, as after any election; what it acknowledged to all is in every in-sync log.
        """
        own = self._own()
        if own is None or node_id == own.node_id or self._logs.gives_way:
            # With a stuck or full disk it would lead, and refuse or hold produces, before it has to.
            return
        live = {each: epoch for each, epoch in self._lifecycle.live.items() if each != node_id}
        proposed_count = 0
        for topic, partition in self._view.partitions():
            state = partition.state
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if state.leader != node_id or own not in state.in_sync or not self._logs.is_usable(topic_partition):
                continue
            if self._proposed.get(topic_partition, -1) >= partition.state_version:
                continue
            after = elections.elected(partition.replicas, state, live, self._rules.min_in_sync(topic, partition))
            if after is not None and after.leader == own.node_id:
                self._write(StateChange.of(topic, partition, after), state.leader_epoch)
                proposed_count += 1
        if proposed_count:
            log.warning("elections.leader_gone", extra=fields(leader=node_id, partitions_count=proposed_count))

    async def elect(self, wanted: Sequence[TopicPartition], *, is_unclean: bool, timeout_ms: int) -> list[ErrorCode]:
        """Hold the elections that an operator requests; returns the outcome of each."""
        due_ms = self._clock.monotonic_ms() + timeout_ms
        usability = await self._usability(wanted, min(timeout_ms, USABILITY_TIMEOUT_MS)) if is_unclean else {}
        loop, turn = asyncio.get_running_loop(), LoopOffload()
        results: list[asyncio.Future[ErrorCode]] = []
        for topic_partition in wanted:
            await turn.pause()
            result: asyncio.Future[ErrorCode] = loop.create_future()
            results.append(result)
            partition = self._view.partition(topic_partition)
            if partition is None:
                result.set_result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            topic = self._view.by_name[topic_partition.topic]
            after = elections.requested(
                partition.replicas,
                partition.state,
                self._lifecycle.live,
                self._rules.min_in_sync(topic, partition),
                is_unclean=is_unclean,
                usability=usability.get(topic_partition, {}),
            )
            if isinstance(after, ErrorCode):
                result.set_result(after)
            else:
                self._propose(StateChange.of(topic, partition, after), partial(_tell, result))
        if results:
            # The tree may not answer now; what was proposed is written, or given up, without the operator's request.
            await asyncio.wait(results, timeout=max(due_ms - self._clock.monotonic_ms(), 0) / 1000)
        return [result.result() if result.done() else ErrorCode.REQUEST_TIMED_OUT for result in results]

    async def _usability(
        self, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, Mapping[NodeId, bool]]:
        """Which live replicas of partitions without a leader have a log that can be used, as far as they answer."""
        by_node: dict[NodeId, list[TopicPartition]] = {}
        turn = LoopOffload()
        for topic_partition in wanted:
            await turn.pause()
            partition = self._view.partition(topic_partition)
            if partition is not None and elections.is_due(partition.state, self._lifecycle.live):
                for node_id in partition.replicas:
                    if node_id in self._lifecycle.live:
                        by_node.setdefault(node_id, []).append(topic_partition)
        found: dict[TopicPartition, dict[NodeId, bool]] = {}
        answers = await asyncio.gather(*(self._usable(*asked, timeout_ms) for asked in by_node.items()))
        for (node_id, asked), usable in zip(by_node.items(), answers, strict=True):
            if usable is not None:
                for topic_partition in asked:
                    found.setdefault(topic_partition, {})[node_id] = topic_partition in usable
        return found

    async def _usable(
        self, node_id: NodeId, asked: Sequence[TopicPartition], timeout_ms: int
    ) -> Collection[TopicPartition] | None:
        if node_id == self._lifecycle.node_id:
            return {each for each in asked if self._logs.is_usable(each)}
        return await self._other_logs.usable(node_id, asked, timeout_ms)

    def _look_at(self, names: Collection[str]) -> None:
        self._unled.difference_update(names)
        topics = [topic for name in names if (topic := self._view.by_name.get(name)) is not None]
        self._decide_each((topic, partition) for topic in topics for partition in topic.partitions)

    def _decide_again(self, topic_partition: TopicPartition) -> None:
        partition = self._view.partition(topic_partition)
        if partition is not None:
            self._decide_each([(self._view.by_name[topic_partition.topic], partition)])

    def _decide_each(self, partitions: Iterable[tuple[Topic, PartitionNode]]) -> None:
        own = self._own()
        if own is None:
            return
        proposed_count = 0
        for topic, partition in partitions:
            if own.node_id in partition.replicas:
                proposed_count += self._decide(topic, partition, own)
        if proposed_count:
            log.info("elections.proposed", extra=fields(partitions_count=proposed_count))
        self._arm()

    def _own(self) -> ReplicaIncarnation | None:
        """This broker in its present life, None while it is not registered or about to stop."""
        node_id, broker_epoch = self._lifecycle.node_id, self._lifecycle.broker_epoch
        if self._is_stopped or broker_epoch == NOT_REGISTERED or not self._lifecycle.is_live(node_id, broker_epoch):
            return None
        return ReplicaIncarnation(node_id, broker_epoch)

    def _decide(self, topic: Topic, partition: PartitionNode, own: ReplicaIncarnation) -> bool:
        """Propose or postpone what is due for a partition; returns whether there is a proposal."""
        topic_partition = TopicPartition(topic.name, partition.partition_index)
        if self._proposed.get(topic_partition, -1) >= partition.state_version:
            return False
        reaffirmed = self._reaffirmed(topic, topic_partition, partition, own)
        if reaffirmed is None and partition.state.has_current_leader(self._lifecycle.live):
            self._postponed.pop(topic_partition, None)
            return False
        over = partition if reaffirmed is None else partition._replace(state=reaffirmed)
        due = elections.due(topic, [over], own, self._lifecycle.live, self._rules)
        election = due[0] if due else None
        if election is not None and election.is_unclean and not self._logs.is_usable(topic_partition):
            election = None
        if election is None and elections.is_due(over.state, self._lifecycle.live):
            self._unled.add(topic.name)
        if reaffirmed is not None and (election is None or (election.is_unclean and election.rank > 0)):
            self._write(StateChange.of(topic, partition, reaffirmed), partition.state.leader_epoch)
        elif election is not None and (
            election.rank == 0 or reaffirmed is not None or self._has_waited(topic_partition, partition, election.rank)
        ):
            self._write(election.change, over.state.leader_epoch)
        else:
            return False
        return True

    def _reaffirmed(
        self, topic: Topic, topic_partition: TopicPartition, partition: PartitionNode, own: ReplicaIncarnation
    ) -> PartitionState | None:
        """The state in which this broker has its place in its present life, or has left; None if there is no change."""
        state, live = partition.state, self._lifecycle.live
        former = [member for member in (*state.in_sync, *state.eligible) if member.node_id == own.node_id]
        if not former:
            return None
        if self._logs.is_usable(topic_partition, though_stuck=True):
            is_complete = all(
                member == own or self._logs.is_complete(topic_partition, member.broker_epoch) for member in former
            )
            reaffirmed = elections.reaffirmed(state, own, is_complete=is_complete)
            if not self._logs.gives_way:
                return reaffirmed
            over = state if reaffirmed is None else reaffirmed
            min_in_sync = self._rules.min_in_sync(topic, partition)
            return elections.given_way(over, own, live, min_in_sync) or reaffirmed
        left = elections.reaffirmed(state, own, is_complete=False)
        if left is None or left.current_in_sync(live) or left.current_eligible(live):
            return left
        # The records are still there: the last live member waits for its repair instead of giving them up, also in a
        # former life of this process, since those that are not live may have lost theirs.
        has_records = all(
            member == own or self._logs.is_complete(topic_partition, member.broker_epoch, though_failed=True)
            for member in former
        )
        return None if has_records and not self._rules.allows_unclean(topic) else left

    def _has_waited(self, topic_partition: TopicPartition, partition: PartitionNode, rank: int) -> bool:
        """Whether the winner of an election had time enough to write it."""
        now_ms = self._clock.monotonic_ms()
        postponed = self._postponed.get(topic_partition)
        if postponed is None or postponed.state_version != partition.state_version:
            due_ms = now_ms + ELECTION_PATIENCE_MS * rank
            self._postponed[topic_partition] = _Postponed(partition.state_version, due_ms)
            return False
        return now_ms >= postponed.due_ms

    def _write(self, change: StateChange, epoch_before: int) -> None:
        topic_partition = change.topic_partition
        self._postponed.pop(topic_partition, None)
        version = change.expected_version
        self._proposed[topic_partition] = version
        before = self._view.partition(topic_partition)
        gives_up = before is not None and _gives_up(before.state, change.state, self._lifecycle.node_id)
        if gives_up:
            self._reads.withhold(topic_partition)

        def on_outcome(outcome: ChangeOutcome) -> None:
            if outcome.result is ChangeResult.APPLIED:
                self.elections_count += change.state.leader_epoch > epoch_before
            elif gives_up and outcome.result is ChangeResult.STALE:
                self._reads.resume(topic_partition)
            if outcome.result is ChangeResult.UNKNOWN and self._proposed.get(topic_partition) == version:
                del self._proposed[topic_partition]
                # The view of the next session may have come already, and be the last one for long.
                self._decide_again(topic_partition)

        self._propose(change, on_outcome)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._postponed and not self._is_stopped:
            due_ms = min(postponed.due_ms for postponed in self._postponed.values())
            delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
            self._timer = self._timers.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        due = [each for each, postponed in self._postponed.items() if postponed.due_ms <= now_ms]
        self._look_at(list(dict.fromkeys(topic_partition.topic for topic_partition in due)))
        for topic_partition in due:
            # Not written after all, since no replica can be elected now, for example: there is nothing to wait for.
            postponed = self._postponed.get(topic_partition)
            if postponed is not None and postponed.due_ms <= now_ms:
                del self._postponed[topic_partition]
        self._arm()

    def _on_balance_timer(self) -> None:
        assert self._balance is not None
        self._balance_timer = self._timers.call_later(self._balance.interval_ms / 1000, self._on_balance_timer)
        own = self._own()
        if own is None or self._logs.gives_way:
            # In sync it may still be: where the others could not acknowledge without it.
            return
        preferred = [each for each in self._view.partitions() if each[1].replicas[0] == own.node_id]
        elsewhere = [each for each in preferred if each[1].state.leader != own.node_id]
        if len(elsewhere) * 100 <= self._balance.imbalance_percentage_max * len(preferred):
            return
        for topic, partition in elsewhere:
            min_in_sync = self._rules.min_in_sync(topic, partition)
            after = elections.preferred(partition.replicas, partition.state, self._lifecycle.live, min_in_sync)
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if after is not None and self._proposed.get(topic_partition, -1) < partition.state_version:
                self._write(StateChange.of(topic, partition, after), partition.state.leader_epoch)


def _gives_up(before: PartitionState, after: PartitionState, node_id: NodeId) -> bool:
    """Whether the broker leads before, and afterwards the others may commit records without it."""
    return before.leader == node_id != after.leader and node_id not in after.in_sync_nodes()


def _tell(result: asyncio.Future[ErrorCode], outcome: ChangeOutcome) -> None:
    """A change that lost a race may be requested again."""
    if not result.done():
        is_applied = outcome.result is ChangeResult.APPLIED
        result.set_result(ErrorCode.NONE if is_applied else ErrorCode.REQUEST_TIMED_OUT)


class Departure:
    """Controlled shutdown: before a broker stops, the others lead its partitions and count on it no more.

    So clients of these partitions find their new leader at once, instead of after the end of this broker's session.
    `min_in_sync`: the effective `min.insync.replicas` of a partition.
    """

    def __init__(
        self,
        tree: Tree,
        topics: TopicRegistry,
        lifecycle: BrokerLifecycle,
        min_in_sync: Callable[[Topic, PartitionNode], int],
        reads: LedReads,
    ) -> None:
        self._tree = tree
        self._topics = topics
        self._lifecycle = lifecycle
        self._min_in_sync = min_in_sync
        self._reads = reads

    async def leave(self) -> None:
        """Hand over what others can take.  A failure is reported only: they take it when the session has ended."""
        handed_over = 0
        try:
            for _ in range(DEPARTURE_ATTEMPTS_MAX):
                # A view may be late, and another broker may have changed a state meanwhile.
                await self._tree.sync()
                await self._topics.refresh()
                changes = self._due()
                if not changes:
                    break
                outcomes = await self._written(changes)
                handed_over += sum(outcome.result is ChangeResult.APPLIED for outcome in outcomes)
        except OttlaError as error:
            log.warning("partitions.not_handed_over", extra=fields(error=str(error)))
        log.info("partitions.handed_over", extra=fields(partitions_count=handed_over))

    async def _written(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        view, own = self._topics.view, self._lifecycle.node_id
        given_up = [
            (before := view.partition(change.topic_partition)) is not None
            and _gives_up(before.state, change.state, own)
            for change in changes
        ]
        for change, is_given_up in zip(changes, given_up, strict=True):
            if is_given_up:
                self._reads.withhold(change.topic_partition)
        outcomes = await self._topics.change_states(changes)
        for change, is_given_up, outcome in zip(changes, given_up, outcomes, strict=True):
            if is_given_up and outcome.result is ChangeResult.STALE:
                self._reads.resume(change.topic_partition)
        return outcomes

    def _due(self) -> list[StateChange]:
        own, live = self._lifecycle.node_id, self._lifecycle.live
        found: list[StateChange] = []
        for topic, partition in self._topics.view.partitions():
            if own not in partition.replicas:
                continue
            minimum = self._min_in_sync(topic, partition)
            after = departed(partition.replicas, partition.state, own, live, minimum)
            if after is not None:
                found.append(StateChange.of(topic, partition, after))
        return found


class RemoteLogs:
    """The `OtherLogs` of an elector: each broker is queried (DescribeLogDirs names only logs that can be used).

    `address_of` returns the address of a live broker.
    """

    def __init__(
        self,
        node_id: NodeId,
        address_of: Callable[[NodeId], tuple[str, int] | None],
        security: PeerSecurity = PeerSecurity(),  # noqa: B008 (an immutable value)
    ) -> None:
        self._security = security
        self._client_id = f"ottla-elections-{node_id}"
        self._address_of = address_of

    async def usable(
        self, node_id: NodeId, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> frozenset[TopicPartition] | None:
        """Those of which the broker has a log that takes appends; None when it does not answer, or refuses."""
        address = self._address_of(node_id)
        if address is None:
            return None
        topics = [DescribableLogDirTopic(name, indexes) for name, indexes in indexes_by_topic(wanted)]
        body = encode_request(ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, DescribeLogDirsRequest(topics))
        try:
            peer = await PeerConnection.open(
                PeerAddress(*address),
                self._client_id,
                timeout_ms=timeout_ms,
                response_bytes_max=_LOG_DIRS_BYTES_MAX,
                security=self._security,
            )
            try:
                answer = await peer.call(ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, body, timeout_ms)
                response = decode_response(ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, answer)
            finally:
                peer.close()
        except (PeerError, WireError):
            return None
        assert isinstance(response, DescribeLogDirsResponse)
        if response.error_code:
            # A refusal names no logs, and is no report about them.
            return None
        return frozenset(
            TopicPartition(topic.name, partition.partition_index)
            for result in response.results
            for topic in result.topics
            for partition in topic.partitions
        )
