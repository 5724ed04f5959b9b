"""A consumer's place in a group without a master: Algorithm 1 of the 2011 paper, on a cluster's ZooKeeper.

A thread with an event loop has the session.  So neither a slow fetch nor a slow user delays what keeps it alive.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.client.consumer_registry.group_nodes import ConsumerNode, GroupPaths
from ottla.client.groups.group_types import GroupMetadata
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import Failed, OnEvents
from ottla.client.membership.tree.member import ConsumerStopped, TreeMember
from ottla.client.wire.client_log import GROUP
from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import Left
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.rebalance_pace import RebalancePace
from ottla.coordination.zookeeper.backend import ZooKeeperBackend, ZooKeeperKeeper
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.event_loop import run

# A consumer id has a host's name, a process id, a random part of 64 bits: with these bounds 100 characters at most.
HOST_LENGTH_MAX: Final = 64
DEFAULT_PACE: Final = RebalancePace()


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """All times in ms.

    session_timeout_ms     a consumer that ZooKeeper misses for so long is dead: others take its partitions
    connection_timeout_ms  how long the first connection may take; later ones are tried for as long as it takes
    client_id              for people: `ottla group describe` shows it
    security               TLS, and the user where the nodes of the cluster belong to one
    """

    session_timeout_ms: int = 6_000
    connection_timeout_ms: int = 10_000
    client_id: str = "ottla"
    security: ZooKeeperSecurity = UNSECURED

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "connection_timeout_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")


def new_consumer_id() -> str:
    """Of this machine and process, and no other consumer's."""
    host = "".join(letter if letter.isascii() and letter.isalnum() else "." for letter in socket.gethostname())
    return f"{host[:HOST_LENGTH_MAX]}-{os.getpid()}-{secrets.token_hex(8)}"


class TreeMembership:
    """`Membership` by Algorithm 1; see docs/consumers.md for its rules.

    `zookeeper` names the servers and the chroot of the cluster: `zk1:2181,zk2:2181/ottla`.
    Raises `BadConnectString`, `BadGroupName`, `ConfigError`.
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        options: TreeOptions = TreeOptions(),
        *,
        pace: RebalancePace = DEFAULT_PACE,
        clock: Clock | None = None,
    ) -> None:
        self.consumer_id: Final = new_consumer_id()
        self._paths: Final = GroupPaths.of(group)
        self._options: Final = options
        self._pace: Final = pace
        self._clock: Final[Clock] = clock or SystemClock()
        self._backend: Final = ZooKeeperBackend(
            zookeeper,
            session_timeout_ms=options.session_timeout_ms,
            connection_timeout_ms=options.connection_timeout_ms,
            security=options.security,
            clock=self._clock,
        )
        self._thread: threading.Thread | None = None
        self._loop_runs: Final = threading.Event()
        # Those of the thread; set once before `_loop_runs`.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # Set once, when there is a session.
        self._member: TreeMember | None = None
        self._is_leaving = False

    @property
    def hand_out_until_ms(self) -> int:
        return 0 if self._member is None else self._member.hand_out_until_ms

    def group_metadata(self) -> GroupMetadata | None:
        raise ConfigError(
            "a group on ZooKeeper takes part in no transaction: no coordinator has its offsets",
            hint="let brokers coordinate the group: bootstrap=... in place of zookeeper=...",
        )

    def join(self, subscription: Subscription, on_events: OnEvents) -> None:
        assert self._thread is None, "it has joined already"
        self._thread = threading.Thread(
            target=self._run, args=(subscription, on_events), name=f"ottla-consumer-{self.consumer_id}", daemon=True
        )
        self._thread.start()
        # The loop alone, not the session: later calls need the loop.
        self._loop_runs.wait()

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        committed = list(offsets)
        self._call(lambda member: member.commit(committed))

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        self._call(lambda member: member.on_stopped(partition, claim, offset))

    def leave(self) -> None:
        self._on_loop(self._leave)

    def close(self) -> None:
        self._on_loop(self._stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _call(self, call: Callable[[TreeMember], None]) -> None:
        """Before there is a member nothing is claimed, so nothing can be said of it."""
        if self._member is not None:
            self._on_loop(lambda: None if self._member is None else call(self._member))

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: the membership is over
                self._loop.call_soon_threadsafe(call)

    def _run(self, subscription: Subscription, on_events: OnEvents) -> None:
        try:
            run(self._live(subscription, on_events))
        except Exception as error:  # noqa: BLE001 (it is logged)
            GROUP.exception("consumer.bug")
            on_events([Failed(ConsumerStopped(error))])
        finally:
            # Also when there never was a loop.
            self._loop_runs.set()

    async def _live(self, subscription: Subscription, on_events: OnEvents) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_runs.set()
        try:
            keeper = await self._connected()
        except OttlaError as error:
            on_events([Failed(error)])
            return
        if keeper is not None:
            await self._take_part(keeper, subscription, on_events)
        if self._is_leaving and (self._member is None or self._member.has_left):
            on_events([Left()])

    async def _connected(self) -> ZooKeeperKeeper | None:
        """With the first session; None when no caller waits for it any more."""
        assert self._stopping is not None
        connecting = asyncio.ensure_future(ZooKeeperKeeper.open(self._backend))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if connecting.done():
            return connecting.result()
        connecting.cancel()
        with suppress(asyncio.CancelledError, OttlaError):
            await (await connecting).close()
        return None

    async def _take_part(self, keeper: ZooKeeperKeeper, subscription: Subscription, on_events: OnEvents) -> None:
        assert self._stopping is not None
        assert self._loop is not None
        member = TreeMember(keeper, self._paths, self._node(subscription), self._new_consumer(), self._clock, on_events)
        self._loop.set_exception_handler(partial(_on_unhandled, member))
        try:
            self._member = member
            member.start()
            if self._is_leaving:
                member.leave()
            waiting = [asyncio.ensure_future(event.wait()) for event in (member.ended, self._stopping)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
        finally:
            # The session goes last: what was owned is released by then, or reported as lost.
            member.stop()
            await keeper.close()

    def _node(self, subscription: Subscription) -> ConsumerNode:
        return ConsumerNode(
            subscription, socket.gethostname(), os.getpid(), self._options.client_id, self._clock.now_ms()
        )

    def _new_consumer(self) -> Consumer:
        return Consumer(self.consumer_id, self._pace, random.Random(secrets.randbits(64)))

    def _leave(self) -> None:
        assert self._stopping is not None
        self._is_leaving = True
        if self._member is None:
            self._stopping.set()
        else:
            self._member.leave()

    def _stop(self) -> None:
        assert self._stopping is not None
        self._stopping.set()


def _on_unhandled(member: TreeMember, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error of a callback is a fault of Ottla; other complaints of the loop are only logged."""
    error = context.get("exception")
    if isinstance(error, Exception) and "handle" in context:
        member.on_bug(error)
    else:
        loop.default_exception_handler(context)
