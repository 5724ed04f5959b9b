"""A process with the product's `Consumer`: executes its effects, and hands out messages to its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import (
    Blocked,
    Committed,
    Effect,
    Left,
    Lost,
    ReadGroup,
    ReadPartitions,
    Register,
    Released,
    Revoke,
    Settled,
    Start,
    Write,
    WriteKind,
)
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import ChangeResult
from tests.consumers_simulation.link import Link
from tests.consumers_simulation.scale import ASK_MS, COMMIT_MS, PACE
from tests.consumers_simulation.tree import Seen

if TYPE_CHECKING:
    from tests.consumers_simulation.simulation import Simulation

MESSAGES_MAX = 3
# A timer may end this much before its time, since delays are divided by the clock's rate.
_ROUNDING_MS = 1e-6


class HandOut:
    """A partition that a stream reads: `asked_end` is the end of the processed messages, exclusive."""

    __slots__ = ("asked_end", "claim", "is_stopped", "next_offset")

    def __init__(self, claim: ClaimId, offset: int) -> None:
        self.claim = claim
        self.next_offset = self.asked_end = max(offset, 0)
        self.is_stopped = False


class SimulatedConsumer:
    """One process, from its start to its end."""

    def __init__(self, simulation: Simulation, number: int, topics: Mapping[str, int]) -> None:
        self._simulation = simulation
        self.consumer_id = f"c{number}"
        self.topics = topics
        drift = simulation.plan.clock_drift
        # The rate of its clock, relative to the tree's.
        self._clock_rate = simulation.chance.uniform(1 - drift, 1 + drift) if drift else 1.0
        self.consumer = Consumer(self.consumer_id, PACE, simulation.chance)
        self.link = Link(simulation, self, simulation.chance)
        self.hand_outs: dict[TopicPartition, HandOut] = {}
        self.is_up = True
        self.is_paused = False
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        # The count of operators' offset changes at its last read in this session.
        self._sets_count: int | None = None
        self._due_ms = 0.0
        self._step_count = 0

    def start(self) -> None:
        self._simulation.trace("%s: starts with %s", self.consumer_id, self.topics)
        self.link.start()
        self._ask_on()
        self._commit_on()

    def run(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run an event in the process: later, when it is paused."""
        if self.is_paused:
            self._backlog.append((call, arguments))
        elif self.is_up:
            call(*arguments)

    def later(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._simulation.timeline.after(delay_ms / self._clock_rate, self.run, call, *arguments)

    def kill(self) -> None:
        self._simulation.trace("%s: killed", self.consumer_id)
        self.is_up = False

    def pause(self) -> None:
        self._simulation.trace("%s: paused", self.consumer_id)
        self.is_paused = True

    def resume(self) -> None:
        self._simulation.trace("%s: resumes", self.consumer_id)
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for call, arguments in backlog:
            self.run(call, *arguments)

    def leave(self) -> None:
        self._simulation.trace("%s: leaves", self.consumer_id)
        self._carry_out(self.consumer.leave(self._now()))

    def now_ms(self) -> float:
        """By its own clock."""
        return self._simulation.timeline.now * self._clock_rate

    def _now(self) -> int:
        return int(self.now_ms() + _ROUNDING_MS)

    def on_session(self, session_id: int, lease_until_ms: int) -> None:
        self._simulation.trace("%s: session %d", self.consumer_id, session_id)
        self._sets_count = None
        self._carry_out(self.consumer.on_session(session_id, lease_until_ms, self._now()))

    def on_session_lost(self) -> None:
        self._simulation.trace("%s: knows that its session is over", self.consumer_id)
        self._carry_out(self.consumer.on_session_lost())

    def on_reconnected(self) -> None:
        self._carry_out(self.consumer.on_reconnected(self._now()))

    def _on_watch(self) -> None:
        self._carry_out(self.consumer.on_change(self._now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        self._step_count += 1
        if self._step_count % 16 == 0:
            self.consumer.check_invariants()
        for effect in effects:
            if not self.is_up:
                return
            self._simulation.trace("%s: %s", self.consumer_id, effect)
            self._carry_out_one(effect)
        due_ms = self.consumer.due_ms
        if due_ms != self._due_ms:
            self._due_ms = due_ms
            if due_ms < 2**62:
                self.later(max(0, due_ms - self.now_ms()), self._on_time, due_ms)

    def _on_time(self, due_ms: int) -> None:
        if due_ms == self._due_ms:
            self._due_ms = 0
            self._carry_out(self.consumer.on_time(self._now()))

    def _carry_out_one(self, effect: Effect) -> None:
        checks = self._simulation.checks
        match effect:
            case Register() | ReadGroup() | ReadPartitions():
                self._ask(effect)
            case Write():
                self._write(effect)
            case Start(partition, _, offset, claim):
                checks.on_start(self, partition, offset, claim)
                self.hand_outs[partition] = HandOut(claim, offset)
            case Revoke(partition):
                self.hand_outs[partition].is_stopped = True
                self.later(self._simulation.chance.random() * 15, self._stopped, effect)
            case Lost(partition):
                self.hand_outs.pop(partition, None)
            case Committed() | Released():
                pass
            case Settled():
                self._simulation.settled_count += 1
            case Blocked():
                self._simulation.blocked_count += 1
            case Left():
                self.is_up = False
                self.link.close()

    def _ask(self, effect: Register | ReadGroup | ReadPartitions) -> None:
        tree, consumer, request_id = self._simulation.tree, self.consumer, effect.request_id

        def failed() -> None:
            self._carry_out(consumer.on_read_failed(request_id, self._now()))

        def registered(is_done: bool | None) -> None:
            outcome = ChangeResult.UNKNOWN if is_done is None else _outcome(is_done)
            self._carry_out(consumer.on_registered(request_id, outcome, self._now()))

        def viewed(seen: Seen) -> None:
            were_set = self._sets_count not in (None, seen.sets_count)
            self._sets_count = seen.sets_count
            self._carry_out(consumer.on_view(request_id, seen.view, self._now()))
            if were_set:
                self._carry_out(consumer.on_offsets_set(self._now()))

        def read(nodes: Any) -> None:
            self._carry_out(consumer.on_nodes(request_id, nodes, self._now()))

        match effect:
            case Register():
                work = partial(tree.register, consumer_id=self.consumer_id, topics=self.topics)
                self.link.ask(work, registered, partial(registered, None))
            case ReadGroup(_, is_synced):
                watch = partial(self.run, self._on_watch)
                self.link.ask(partial(tree.read_group, on_watch=watch, is_synced=is_synced), viewed, failed)
            case ReadPartitions(_, partitions):
                self.link.ask(partial(tree.read_nodes, partitions=partitions), read, failed)

    def _write(self, write: Write) -> None:
        def written(is_done: bool) -> None:
            self._on_written(write, _outcome(is_done))

        def failed() -> None:
            self._on_written(write, ChangeResult.UNKNOWN)

        work = partial(self._simulation.tree.write, write=write)
        # A commit is sent by the present session: the offset node's version decides whether it counts.
        self.link.ask(work, written, failed, is_bound=write.kind is not WriteKind.COMMIT)

    def _on_written(self, write: Write, outcome: ChangeResult) -> None:
        self._simulation.trace("%s: %s of %s is %s", self.consumer_id, write.kind.value, write.partition, outcome.name)
        self._carry_out(self.consumer.on_written(write, outcome, self._now()))

    def may_hand_out(self, partition: TopicPartition) -> bool:
        hand_out = self.hand_outs.get(partition)
        is_given = hand_out is not None and not hand_out.is_stopped
        return is_given and self.is_up and self.has_lease

    @property
    def has_lease(self) -> bool:
        return self.now_ms() < self.consumer.hand_out_until_ms

    def _ask_on(self) -> None:
        """The streams request more messages: their last ones are then processed."""
        self.later(ASK_MS * (0.5 + self._simulation.chance.random()), self._ask_on)
        for partition in list(self.hand_outs):
            self._ask_for(partition)

    def _ask_for(self, partition: TopicPartition) -> None:
        hand_out, checks = self.hand_outs[partition], self._simulation.checks
        for _ in range(1 + self._simulation.chance.randrange(MESSAGES_MAX)):
            if hand_out.is_stopped:
                return
            hand_out.asked_end = hand_out.next_offset
            checks.on_asked(partition, hand_out.asked_end)
            if not self.may_hand_out(partition) or hand_out.next_offset >= self._simulation.log_ends[partition]:
                return
            checks.on_hand_out(self, partition, hand_out.next_offset)
            hand_out.next_offset += 1

    def _commit_on(self) -> None:
        self.later(COMMIT_MS, self._commit_on)
        offsets = [
            (partition, each.claim, self.committable(each))
            for partition, each in self.hand_outs.items()
            if not each.is_stopped
        ]
        self._carry_out(self.consumer.commit(offsets))

    def committable(self, hand_out: HandOut) -> int:
        return hand_out.asked_end

    def _stopped(self, revoke: Revoke) -> None:
        hand_out = self.hand_outs.get(revoke.partition)
        if hand_out is None or hand_out.claim != revoke.claim:
            return
        del self.hand_outs[revoke.partition]
        offset = self.committable(hand_out)
        self._simulation.checks.on_stopped(revoke.claim, offset)
        self._carry_out(self.consumer.on_stopped(revoke.partition, revoke.claim, offset, self._now()))


def _outcome(is_done: bool) -> ChangeResult:
    return ChangeResult.APPLIED if is_done else ChangeResult.STALE
