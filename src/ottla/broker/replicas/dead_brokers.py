"""Brokers whose process has ended, found before their registration does.

A process that is killed closes its sockets at once, while its registration stays until its session times out, and
acks=all would wait for it as long.  So another broker tries to connect to it, and takes it for dead where no process
listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.model.identifiers import NodeId
from ottla.observe.events import fields

log = logging.getLogger(__name__)

# A killed process closes its connections and its listeners one after the other: probed too early, a listener answers.
PROBES_AFTER_S: Final = (0.0, 0.05, 0.25, 1.0)
PROBE_TIMEOUT_S: Final = 1.0

Address = tuple[str, int]

# Each after the one before: together longer than a moment, and short beside a session's time-out.
LOOKS_AFTER_S: Final = (0.1, 0.4)


async def is_refused(address: Address) -> bool:
    """Whether the machine at this address refuses connections there; no answer proves nothing."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


class GoneFollowers:
    """Followers whose process has ended, for all partitions that this broker leads.

    When the connection that a follower fetches by closes, the leader tries to connect to the follower: if no process
    listens there, it leaves the in-sync sets.  That is always safe: one that lives after all joins again by fetching.
    `look_at` decides a partition's in-sync set again; `address_of` returns the address of a live broker.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        look_at: Callable[[Partition], None],
        address_of: Callable[[NodeId], Address | None],
        is_refused: Callable[[Address], Awaitable[bool]] = is_refused,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._partitions = partitions
        self._look_at = look_at
        self._address_of = address_of
        self._is_refused = is_refused
        self._sleep = sleep
        self._probes: dict[tuple[NodeId, int], asyncio.Task[None]] = {}
        self._is_stopped = False

    def on_connection_closed(self, node_id: NodeId, broker_epoch: int) -> None:
        """The follower's connection has ended: for a reason of the network, or because its process has."""
        key = node_id, broker_epoch
        if self._is_stopped or key in self._probes:
            return
        probe = asyncio.get_running_loop().create_task(self._probe(node_id, broker_epoch), name="probe of a follower")
        self._probes[key] = probe
        probe.add_done_callback(lambda _: self._probes.pop(key, None))

    def on_gone(self, node_id: NodeId, broker_epoch: int) -> None:
        """No process listens at this broker's address."""
        partitions_count = 0
        for partition in self._partitions:
            if partition.on_follower_gone(node_id, broker_epoch):
                self._look_at(partition)
                partitions_count += 1
        if partitions_count:
            log.warning("followers.gone", extra=fields(broker=node_id, partitions_count=partitions_count))

    async def stop(self) -> None:
        """Probe no more followers."""
        self._is_stopped = True
        probes = list(self._probes.values())
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    async def _probe(self, node_id: NodeId, broker_epoch: int) -> None:
        for delay_s in PROBES_AFTER_S:
            await self._sleep(delay_s)
            address = self._address_of(node_id)
            if address is None:
                return  # its registration ended too: the leaders know
            if await self._is_refused(address):
                self.on_gone(node_id, broker_epoch)
                return


class RefusedLeaders:
    """Leaders whose machine refused a follower's connection: looked at again before they are taken for dead.

    The machine of a process that was killed refuses connections until the process is started again.  One refusal says
    less: a full backlog, a firewall that is being reloaded or an address that moves refuse a living broker's
    connections for a moment, and an election would depose it.  So a leader counts as dead when every look of
    `LOOKS_AFTER_S` is refused, in the same life of its broker.

    Calls `on_gone` with node id and broker epoch of each that is dead; `address_of`: where a live broker listens.
    """

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
