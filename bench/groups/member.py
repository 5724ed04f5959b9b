"""A classic group member as lean as the protocol allows: a coroutine with one connection, not a client library.

It joins, as leader assigns ranges, syncs, asks for its committed offsets, fetches once from one of its partitions, and
then sends heartbeats until the coordinator wants it to rejoin.  It reads nothing more: the group is what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from bench.groups import requests
from bench.groups.board import Board
from bench.groups.connection import Connection
from bench.wire import BrokerRefused

REJOIN: Final = (requests.REBALANCE_IN_PROGRESS, requests.ILLEGAL_GENERATION)
RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class GroupPlan:
    port: int
    group: str
    topic: str
    partitions: int
    heartbeat_s: float
    session_ms: int = 6000
    rebalance_ms: int = 60_000


def assign_ranges(members: list[str], partitions: int) -> dict[str, list[int]]:
    """Neighbouring partitions, as evenly as can be: the first members have one more."""
    each, more = divmod(partitions, len(members))
    shares, start = {}, 0
    for index, member in enumerate(sorted(members)):
        end = start + each + (1 if index < more else 0)
        shares[member] = list(range(start, end))
        start = end
    return shares


class Member:
    """`start()` it, then `leave()` or `die()`.  `name` is its line on the board."""

    def __init__(self, name: str, plan: GroupPlan, board: Board) -> None:
        self.name = name
        self.plan = plan
        self.partitions: list[int] = []
        self.generation = -1
        self.member_id = ""
        self.connection: Connection | None = None
        self._board = board
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def leave(self) -> None:
        """Leave the group, as a consumer that is closed does."""
        await self._stop()
        assert self.connection is not None, "it has joined"
        body = requests.leave_group(self.plan.group, self.member_id)
        error = requests.read_error(await self.connection.ask(requests.LEAVE_GROUP, body))
        self.connection.close()
        if error != requests.NONE:
            raise BrokerRefused(f"LeaveGroup: error code {error}")

    async def die(self) -> None:
        """As a process that is killed: the connection goes, nothing is said."""
        await self._stop()
        if self.connection is not None:
            self.connection.close()

    def failure(self) -> BaseException | None:
        """Why it ended unasked; None while it runs."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    async def _stop(self) -> None:
        self._board.erase(self.name)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._board.erase(self.name)

    async def _run(self) -> None:
        self.connection = await Connection.open(self.plan.port)
        while True:
            if not await self._join():
                continue
            await self._begin_to_consume()
            self._board.write(self.name, self.generation, self.partitions)
            await self._beat()
            self._board.erase(self.name)

    async def _join(self) -> bool:
        """False: begin again."""
        plan, connection = self.plan, self._connected()
        body = requests.join_group(plan.group, self.member_id, plan.topic, plan.session_ms, plan.rebalance_ms)
        joined = requests.read_join_group(await connection.ask(requests.JOIN_GROUP, body))
        if joined.error_code == requests.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.error_code != requests.NONE:
            return await self._recover("JoinGroup", joined.error_code)
        self.member_id, self.generation = joined.member_id, joined.generation
        shares = assign_ranges(joined.members, plan.partitions) if joined.leader == joined.member_id else {}
        assignments = {member: requests.assignment(plan.topic, share) for member, share in shares.items()}
        body = requests.sync_group(plan.group, self.generation, self.member_id, assignments)
        error, self.partitions = requests.read_sync_group(await connection.ask(requests.SYNC_GROUP, body))
        return error == requests.NONE or await self._recover("SyncGroup", error)

    async def _recover(self, what: str, error: int) -> bool:
        if error == requests.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif error in requests.LOADING:
            await asyncio.sleep(RETRY_S)
        elif error not in REJOIN:
            raise BrokerRefused(f"{what}: error code {error}")
        return False

    async def _begin_to_consume(self) -> None:
        """Committed offsets of all its partitions, then one fetch: from here on records would flow."""
        if not self.partitions:
            return
        plan, connection = self.plan, self._connected()
        body = requests.offset_fetch(plan.group, plan.topic, self.partitions)
        error, offsets = requests.read_offset_fetch(await connection.ask(requests.OFFSET_FETCH, body))
        if error != requests.NONE:
            raise BrokerRefused(f"OffsetFetch: error code {error}")
        first = self.partitions[0]
        body = requests.fetch(plan.topic, first, max(0, offsets[first]))
        error = requests.read_fetch(await connection.ask(requests.FETCH, body))
        if error != requests.NONE:
            raise BrokerRefused(f"Fetch: error code {error}")

    async def _beat(self) -> None:
        """Until the coordinator wants it to join again."""
        while True:
            await asyncio.sleep(self.plan.heartbeat_s)
            body = requests.heartbeat(self.plan.group, self.generation, self.member_id)
            error = requests.read_error(await self._connected().ask(requests.HEARTBEAT, body))
            if error != requests.NONE:
                await self._recover("Heartbeat", error)
                return

    def _connected(self) -> Connection:
        assert self.connection is not None, "it has been started"
        return self.connection
