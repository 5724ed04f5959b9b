"""From a member's join, leave or death to everybody consuming again; a join storm; commits of one group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

from bench.groups import requests
from bench.groups.board import Board
from bench.groups.connection import Connection
from bench.groups.member import RETRY_S, GroupPlan, Member
from bench.peers.peer import Peer
from bench.study import percentile
from bench.wire import BrokerRefused, Wire

COORDINATOR_TIMEOUT_S: Final = 30


class Group:
    """Its members and their board; times are seconds from an event to the last member's first fetch after it."""

    def __init__(self, plan: GroupPlan, kind: type[Member] = Member) -> None:
        self.plan = plan
        self._kind = kind
        self.members: list[Member] = []
        self._board = Board(plan.partitions)
        self._started_count = 0

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """All members are closed, also after an error."""
        members, self.members = self.members, []
        await asyncio.gather(*(member.die() for member in members))

    async def form(self, count: int) -> float:
        """So many join at once."""
        return await self._timed(lambda: self._add(count), len(self.members) + count)

    async def leave(self) -> float:
        """The one that joined last."""
        member = self.members.pop()
        return await self._timed(member.leave, len(self.members))

    async def die(self) -> float:
        member = self.members.pop()
        return await self._timed(member.die, len(self.members))

    async def dissolve(self) -> None:
        """Everybody leaves, at once."""
        members, self.members = self.members, []
        await asyncio.gather(*(member.leave() for member in members))

    async def _add(self, count: int) -> None:
        for _ in range(count):
            member = self._kind(f"member-{self._started_count}", self.plan, self._board)
            self._started_count += 1
            self.members.append(member)
            member.start()

    async def _timed(self, event: Callable[[], Awaitable[None]], members: int) -> float:
        began = time.monotonic()
        await event()
        try:
            return await self._board.settle(members) - began
        except TimeoutError:
            for member in self.members:
                if (failure := member.failure()) is not None:
                    raise failure from None
            raise


async def wait_for_coordinator(port: int, group: str) -> None:
    """Until the broker has a coordinator for the group: the first group of all makes the offsets topic."""
    connection = await Connection.open(port)
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    try:
        while True:
            found = await connection.ask(requests.FIND_COORDINATOR, requests.find_coordinator(group))
            error = requests.read_error(found)
            if error == requests.NONE:
                body = requests.offset_fetch(group, "none", [0])
                error, _ = requests.read_offset_fetch(await connection.ask(requests.OFFSET_FETCH, body))
            if error not in requests.LOADING:
                return
            if time.monotonic() > deadline:
                raise BrokerRefused(f"no coordinator for {group} within {COORDINATOR_TIMEOUT_S} s: error code {error}")
            await asyncio.sleep(RETRY_S)
    finally:
        connection.close()


async def measure_commits(group: Group, seconds: float, peer: Peer) -> dict[str, float]:
    """Every member commits one partition's offset again and again, one request in flight each."""
    until = time.monotonic() + seconds
    latencies_s: list[float] = []
    cpu_before, own_before = peer.cpu_seconds(), time.process_time()

    async def commit(member: Member) -> None:
        assert member.connection is not None, "it has joined"
        plan, partition, offset = group.plan, member.partitions[0], 0
        while time.monotonic() < until:
            offset += 1
            body = requests.offset_commit(
                plan.group, member.generation, member.member_id, plan.topic, {partition: offset}
            )
            sent = time.perf_counter()
            error = requests.read_offset_commit(await member.connection.ask(requests.OFFSET_COMMIT, body))
            latencies_s.append(time.perf_counter() - sent)
            if error != requests.NONE:
                raise BrokerRefused(f"OffsetCommit: error code {error}")

    began = time.monotonic()
    await asyncio.gather(*(commit(member) for member in group.members))
    elapsed_s = time.monotonic() - began
    return {
        "commits_per_s": len(latencies_s) / elapsed_s,
        "p50_ms": percentile(latencies_s, 0.5) * 1000,
        "p99_ms": percentile(latencies_s, 0.99) * 1000,
        "broker_cpu_us_per_commit": (peer.cpu_seconds() - cpu_before) / len(latencies_s) * 1e6,
        "client_cpu_share": (time.process_time() - own_before) / elapsed_s,
    }


def make_topic(peer: Peer, topic: str, partitions: int) -> None:
    with Wire(peer.port) as wire:
        wire.create_topic(topic, partitions)
