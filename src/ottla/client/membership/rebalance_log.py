"""What a consumer logs of its group: when a rebalance starts and ends, and what one waits for."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.membership.membership import Event, Failed
from ottla.client.wire.client_log import GROUP
from ottla.consumers.effects import Blocked, Left, Lost, Released, Revoke, Settled, Start
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import named
from ottla.observe.text import safe_line
from ottla.runtime.clock import Clock


class RebalanceLog:
    """Receives the events of one membership, in order."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._owned: set[TopicPartition] = set()
        # What a rebalance under way has brought and taken, and since when; None: there is none.
        self._began_ms: int | None = None
        self._gained: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._blocked_reason: str | None = None

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case Start(partition):
                self._begin()
                self._owned.add(partition)
                self._gained.add(partition)
            case Revoke():
                self._begin()
            case Lost(partition) | Released(partition):
                self._begin()
                self._owned.discard(partition)
                self._lost.add(partition)
            case Settled():
                self._end()
            case Blocked(reason):
                self._block(reason)
            case Left():
                GROUP.info("left group %s", safe_line(self._group), extra=named("group.left", group=self._group))
            case Failed(error):
                reason = safe_line(str(error))
                GROUP.error(
                    "the consumer cannot stay in group %s: %s",
                    safe_line(self._group),
                    reason,
                    extra=named("group.failed", group=self._group, reason=reason),
                )

    def _begin(self) -> None:
        if self._began_ms is None:
            self._began_ms = self._clock.monotonic_ms()
            facts = named("rebalance.started", group=self._group, owned_count=len(self._owned))
            GROUP.info("a rebalance of group %s starts", safe_line(self._group), extra=facts)

    def _end(self) -> None:
        self._blocked_reason = None
        if self._began_ms is None:
            return
        took_ms = self._clock.monotonic_ms() - self._began_ms
        both = self._gained & self._lost
        GROUP.info(
            "a rebalance of group %s ended after %d ms: %d partitions, %d more and %d fewer than before",
            safe_line(self._group),
            took_ms,
            len(self._owned),
            len(self._gained - both),
            len(self._lost - both),
            extra=named(
                "rebalance.ended",
                group=self._group,
                took_ms=took_ms,
                owned_count=len(self._owned),
                gained_count=len(self._gained - both),
                lost_count=len(self._lost - both),
            ),
        )
        self._began_ms = None
        self._gained.clear()
        self._lost.clear()

    def _block(self, reason: str) -> None:
        """`reason` names the broker that cannot be reached, or the holders of partitions."""
        if reason != self._blocked_reason:
            text = safe_line(reason)
            GROUP.warning(
                "the consumer of group %s waits: %s",
                safe_line(self._group),
                text,
                extra=named("group.waiting", group=self._group, reason=text),
            )
        self._blocked_reason = reason
