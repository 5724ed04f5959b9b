"""Registers this broker in the tree, and reads the registrations of all.

A registration lasts as long as the session with the tree that made it, and each one has another broker epoch.  So after
the loss of a session the broker registers again, and is from then on another incarnation of its replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokerIdTaken, BrokerRegistration, BrokerRegistry, BrokersView
from ottla.coordination.layout import broker_path
from ottla.coordination.tree import BadVersion, NodeExists, NoNode, Operation, SessionLost, SessionState
from ottla.observe.events import fields
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

# How often a node id that another session holds is requested again.
ATTEMPT_INTERVAL_S: Final = 0.2


async def _record_nowhere(_broker_epoch: int) -> None:
    return None


class TreeSession(Protocol):
    """The present session of a tree: whether a registration, or a write whose outcome is unknown, is of that one."""

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...


class Generation(Protocol):
    """The part of the data directory's generation that this module needs."""

    async def write(self) -> Sequence[Operation]:
        """Move the directory's, durably; returns what moves the tree's."""
        ...


class Registrar:
    """Keeps `lifecycle` up to date; `wait` is `asyncio.sleep`."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        registry: BrokerRegistry,
        registration: BrokerRegistration,
        session: TreeSession,
        clock: Clock,
        wait: Callable[[float], Awaitable[object]],
    ) -> None:
        self.registration: Final = registration
        self._lifecycle = lifecycle
        self._registry = registry
        self._session = session
        self._clock = clock
        self._wait = wait

    @property
    def view(self) -> BrokersView:
        """The live brokers as of the last `refresh`."""
        return self._registry.view

    def _require_session(self, session_id: int) -> None:
        """Raises `SessionLost` if it ended while something was waited for; the listeners were called."""
        if self._session.session_id != session_id or self._session.state is SessionState.LOST:
            raise SessionLost(broker_path(self.registration.node_id))

    async def refresh(self) -> BrokersView:
        """Read the live brokers; the same view while there is no change."""
        before = self._registry.view
        view = await self._registry.refresh()
        if view is not before:
            self._lifecycle.saw(view)
        return view

    async def registered_ms(self) -> int | None:
        """When this broker was registered, by the tree's own clock; None when its session has ended."""
        return await self._registry.registered_ms(self.registration.node_id)

    async def register(
        self,
        patience_ms: int = 0,
        record: Callable[[int], Awaitable[None]] = _record_nowhere,
        generation: Generation | None = None,
    ) -> int:
        """Register in the present session, and read the live brokers; returns the new broker epoch.

        A node id that another session holds is requested again for `patience_ms`: it may be that of this broker's
        former process, and then ends with its session.  Raises `BrokerIdTaken` after that.

        `record` is awaited with the epoch before `lifecycle` has it, so before anything is done under it.  When it
        raises, this broker is not registered for all that it knows, and has to register again.

        `generation`: of the data directory, which moves with the registration.  Raises what its `write` raises.
        """
        give_up_ms = self._clock.monotonic_ms() + patience_ms
        is_told = False
        while True:
            try:
                session_id = self._session.session_id
                now_ms = self._clock.now_ms()
                if generation is None:
                    broker_epoch = await self._registry.register(self.registration, now_ms)
                else:
                    broker_epoch = await self._registry.register(self.registration, now_ms, generation.write)
                break
            except (BadVersion, NodeExists, NoNode):
                # The generation is another one than was read a moment ago: judge it again.
                if self._clock.monotonic_ms() >= give_up_ms:
                    raise
            except BrokerIdTaken:
                if self._clock.monotonic_ms() >= give_up_ms:
                    raise
                if not is_told:
                    node_id = self.registration.node_id
                    log.warning("broker.id_in_use", extra=fields(node_id=node_id, waits_ms=patience_ms))
                    is_told = True
            await self._wait(ATTEMPT_INTERVAL_S)
        self._require_session(session_id)
        await record(broker_epoch)
        self._require_session(session_id)
        self._lifecycle.registered(broker_epoch)
        await self.refresh()
        return broker_epoch
