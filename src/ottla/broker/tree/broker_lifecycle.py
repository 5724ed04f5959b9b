"""This broker among the live ones: its registration, the others', and the lease on its session.

The end of the lease is acted on at once and not at the next request.  Requests wait at a leader: fetches for records,
produces for a flush, members for their group.  A leader whose lease is over must release them, since the next leader
has what they wait for and this one never will.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.tree import Lease
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import PartitionState
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import Timers

NOT_REGISTERED: Final = -1

_NOBODY: Final[Mapping[NodeId, int]] = MappingProxyType({})
log = logging.getLogger(__name__)

# How often a lease that is over is compared again: it may be extended in the same session.
RENEWAL_CHECK_MS: Final = 50
# A lease that never ends, and one of a machine that was suspended: its timers stood still.
CHECK_INTERVAL_MS_MAX: Final = 10_000


class BrokerLifecycle:
    """Other modules read the fields; `Registrar`, `Coordination` and `LeaseWatch` call the methods.

    A broker leads only in the life that the partition's state names: after a restart it has another broker epoch, and
    never resumes what it led before (KIP-903).  The one broker of an embedded tree is `sole`: no other can have led in
    its absence, so it leads each partition whose state names its node id.
    """

    __slots__ = ("broker_epoch", "is_sole", "is_suspended", "lease", "live", "node_id")

    def __init__(self, node_id: NodeId, lease: Lease | None = None, *, is_sole: bool = False) -> None:
        self.node_id: Final = node_id
        self.is_sole: Final = is_sole
        # None: there is no session that could end without this process.
        self.lease: Final = lease
        # Of the present registration, `NOT_REGISTERED` while there is none.
        self.broker_epoch = NOT_REGISTERED
        # The live brokers and their broker epochs, this one included.
        self.live = _NOBODY
        # The lease was over when `LeaseWatch` compared it last: this broker serves as if others led, until it is
        # extended.  `is_uncertain` compares now.
        self.is_suspended = False

    @classmethod
    def sole(cls, node_id: NodeId) -> BrokerLifecycle:
        """The only broker of its tree."""
        return cls(node_id, is_sole=True)

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch != NOT_REGISTERED

    def registered(self, broker_epoch: int) -> None:
        """The tree has this broker's registration."""
        self.broker_epoch = broker_epoch
        self.live = MappingProxyType({**self.live, self.node_id: broker_epoch})

    def unregistered(self) -> None:
        """The session ended, and the registration with it: this broker leads nothing until it has another."""
        self.broker_epoch = NOT_REGISTERED

    def suspend(self, is_suspended: bool) -> None:
        """The lease is over, or it was extended."""
        self.is_suspended = is_suspended

    def saw(self, view: BrokersView) -> None:
        """The live brokers as the tree has them now."""
        self.live = MappingProxyType(view.epochs())

    def is_live(self, node_id: int, broker_epoch: int) -> bool:
        """Whether this is the present life of a live broker."""
        return broker_epoch != NOT_REGISTERED and self.live.get(NodeId(node_id)) == broker_epoch

    def is_uncertain(self, now_ms: int) -> bool:
        """Whether this broker's session may have ended, by `Clock.boottime_ms`: then it must acknowledge nothing."""
        return self.lease is not None and now_ms >= self.lease.until_ms

    def own_epoch(self, state: PartitionState) -> int:
        """The broker epoch in which this broker may lead a partition with this state."""
        if self.is_sole:
            return next((epoch for node_id, epoch in state.in_sync if node_id == self.node_id), self.broker_epoch)
        return self.broker_epoch


class LeaseWatch:
    """Keeps `BrokerLifecycle.is_suspended` up to date by a timer; `on_change` is called after each change of it.

    A process that was paused serves requests before its timers: reads and flushes call `check` first.
    """

    __slots__ = ("_clock", "_lease", "_lifecycle", "_on_change", "_timer", "_timers")

    def __init__(
        self, lifecycle: BrokerLifecycle, lease: Lease, clock: Clock, timers: Timers, on_change: Callable[[], None]
    ) -> None:
        self._lifecycle = lifecycle
        self._lease = lease
        self._clock = clock
        self._timers = timers
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._on_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Compare the lease with the clock now."""
        # In every read: one comparison, as long as the lease holds.
        if (self._clock.boottime_ms() >= self._lease.until_ms) is not self._lifecycle.is_suspended:
            self._change()

    def _change(self) -> None:
        lifecycle = self._lifecycle
        lifecycle.suspend(not lifecycle.is_suspended)
        if lifecycle.is_suspended:
            log.warning("lease.ended", extra=fields(broker_epoch=lifecycle.broker_epoch))
        else:
            log.info("lease.extended", extra=fields(broker_epoch=lifecycle.broker_epoch))
        self._on_change()

    def _on_timer(self) -> None:
        try:
            self.check()
        finally:
            # Even if the change fails for one partition, the next one must not be missed.
            left_ms = self._lease.until_ms - self._clock.boottime_ms()
            if self._lifecycle.is_suspended:
                left_ms = RENEWAL_CHECK_MS
            delay_ms = max(1, min(left_ms, CHECK_INTERVAL_MS_MAX))
            self._timer = self._timers.call_later(delay_ms / 1000, self._on_timer)
