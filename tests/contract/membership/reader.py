"""The consumer of a membership in these tests: it reads nothing, and checks the contract for all members."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import CommitRefused, Event, Failed, Membership
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import SystemClock
from tests.eventually import eventually


class Ledger:
    """Which reader hands out each partition of a group; `faults` are those of all readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[TopicPartition, tuple[Reader, ClaimId]] = {}
        self.faults: list[str] = []

    def begin(self, reader: Reader, started: Start) -> None:
        with self._lock:
            held = self._holders.get(started.partition)
            if held is not None and held[0].may_hand_out:
                self.faults.append(f"{started} at {reader.name} while {held[0].name} hands it out by {held[1]}")
            self._holders[started.partition] = (reader, started.claim)

    def end(self, reader: Reader, partition: TopicPartition, claim: ClaimId) -> None:
        with self._lock:
            if self._holders.get(partition) == (reader, claim):
                del self._holders[partition]


class Reader:
    """A consumer that has processed up to `asked[partition]`, or else up to its start offset.

    It stops revoked partitions at once, or, with `stops_late`, when `stop` is called.
    """

    def __init__(
        self, membership: Membership, subscription: Subscription, ledger: Ledger, name: str, *, stops_late: bool = False
    ) -> None:
        self.membership = membership
        self.name = name
        self.asked: dict[TopicPartition, int] = {}
        self.events: list[Event] = []
        self.held: dict[TopicPartition, Start] = {}
        self.stopping: dict[TopicPartition, ClaimId] = {}
        self._ledger = ledger
        self._stops_late = stops_late
        self._clock = SystemClock()
        membership.join(subscription, self._on_events)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.membership.close()

    @property
    def may_hand_out(self) -> bool:
        return self._clock.boottime_ms() < self.membership.hand_out_until_ms

    @property
    def partitions(self) -> set[int]:
        """The partitions that it hands out."""
        return {partition.partition for partition in self.held.keys() - self.stopping.keys()}

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    def starts(self) -> dict[TopicPartition, int]:
        """The offset of the last start of each partition."""
        return {event.partition: event.offset for event in list(self.events) if isinstance(event, Start)}

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if self.events and isinstance(self.events[-1], Left | Failed):
                self._ledger.faults.append(f"{event} at {self.name} after {self.events[-1]}")
            self._take(event)
            self.events.append(event)

    def _take(self, event: Event) -> None:
        match event:
            case Start(partition):
                if partition in self.held:
                    self._ledger.faults.append(f"{event} at {self.name} while {self.held[partition]} is not over")
                self._ledger.begin(self, event)
                self.held[partition] = event
            case Revoke(partition, claim):
                self._expect(event, partition, claim)
                self.stopping[partition] = claim
                if not self._stops_late:
                    self.stop(partition)
            case Released(partition, claim, offset):
                self._expect(event, partition, claim)
                if partition not in self.stopping:
                    self._ledger.faults.append(f"{event} at {self.name} without a revocation")
                if offset != self._position(partition):
                    self._ledger.faults.append(f"{event} at {self.name}, passed {self._position(partition)}")
                self._end(partition, claim)
            case Lost(partition, claim):
                self._expect(event, partition, claim)
                self._end(partition, claim)
            case Committed(partition, claim) | CommitRefused(partition, claim):
                self._expect(event, partition, claim)
            case Settled() | Blocked() | Left() | Failed():
                if isinstance(event, Left | Failed) and self.held:
                    self._ledger.faults.append(f"{event} at {self.name} with {self.held}")

    def _expect(self, event: Event, partition: TopicPartition, claim: ClaimId) -> None:
        if partition not in self.held or self.held[partition].claim != claim:
            self._ledger.faults.append(f"{event} at {self.name}, which has {self.held.get(partition)}")

    def _end(self, partition: TopicPartition, claim: ClaimId) -> None:
        self._ledger.end(self, partition, claim)
        self.held.pop(partition, None)
        self.stopping.pop(partition, None)

    def _position(self, partition: TopicPartition) -> int:
        started = self.held.get(partition)
        return self.asked.get(partition, NO_OFFSET if started is None else started.offset)

    def stop(self, partition: TopicPartition) -> None:
        """Confirm that a revoked partition is no longer handed out."""
        claim = self.stopping[partition]
        offset = self._position(partition)
        self._ledger.end(self, partition, claim)
        self.membership.on_stopped(partition, claim, offset)

    def commit(self, partition: TopicPartition, offset: int) -> None:
        """Process up to it, and commit; returns with the response."""
        claim = self.held[partition].claim
        self.asked[partition] = offset
        self.membership.commit([(partition, claim, offset)])
        eventually(
            lambda: list(self.events),
            lambda events: any(event == Committed(partition, claim, offset) for event in events),
        )

    def leave(self) -> None:
        """Returns when it has left."""
        self.membership.leave()
        eventually(lambda: list(self.events), lambda events: events and isinstance(events[-1], Left))
