"""Leaders whose machine refused a follower's connection: looked at again before they are taken for dead.

The machine of a process that was killed refuses connections until the process is started again.  One refusal says less:
a full backlog, a firewall that is being reloaded or an address that moves refuse a living broker's connections for a
moment, and an election would depose it.  So a leader counts as dead when every look of `LOOKS_AFTER_S` is refused, in
the same life of its broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.broker.replicas.gone_followers import Address, is_refused
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.model.identifiers import NodeId

# Each after the one before: together longer than a moment, and short beside a session's time-out.
LOOKS_AFTER_S: Final = (0.1, 0.4)


class RefusedLeaders:
    """Calls `on_gone` with node id and broker epoch of each that is dead; `address_of`: where a live broker listens."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        address_of: Callable[[NodeId], Address | None],
        on_gone: Callable[[NodeId, int], None],
        is_refused: Callable[[Address], Awaitable[bool]] = is_refused,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._lifecycle = lifecycle
        self._address_of = address_of
        self._on_gone = on_gone
        self._is_refused = is_refused
        self._sleep = sleep
        self._looks: dict[NodeId, asyncio.Task[None]] = {}
        self._is_stopped = False

    def on_refused(self, node_id: NodeId) -> None:
        """A connection to a leader that was reached before was refused."""
        broker_epoch = self._lifecycle.live.get(node_id)
        if self._is_stopped or broker_epoch is None or node_id in self._looks:
            return
        looks = asyncio.get_running_loop().create_task(
            self._look_again(node_id, broker_epoch), name="looks at a leader"
        )
        self._looks[node_id] = looks
        looks.add_done_callback(lambda _: self._looks.pop(node_id, None))

    async def stop(self) -> None:
        """Look at none any more."""
        self._is_stopped = True
        looks = list(self._looks.values())
        for each in looks:
            each.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look_again(self, node_id: NodeId, broker_epoch: int) -> None:
        for delay_s in LOOKS_AFTER_S:
            await self._sleep(delay_s)
            address = self._address_of(node_id)
            if address is None or not await self._is_refused(address):
                return
        if self._lifecycle.is_live(node_id, broker_epoch):
            self._on_gone(node_id, broker_epoch)
