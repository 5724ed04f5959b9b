"""Groups that follow one topic: each fetches what a paced producer writes, and commits after each fetch."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.groups import requests
from bench.groups.connection import Connection
from bench.groups.member import RETRY_S, GroupPlan, Member
from bench.groups.rebalance import Group, wait_for_coordinator
from bench.growth.load import latencies, make_topic
from bench.peers.peer import Peer
from bench.raw_client.load import ProduceLoad, put_load
from bench.study import percentile
from bench.wire import BrokerRefused, Wire

# The records of a request mostly reach each group in a fetch: 100 groups fetch and commit 2,000 times a second.
BATCH: Final = 20
REQUESTS_PER_S: Final = 20
WAIT_MS: Final = 500
HEARTBEAT_S: Final = 3.0
CAUGHT_UP_WITHIN_S: Final = 30.0
COORDINATOR_WITHIN_S: Final = 30.0


class LeanMember(Member):
    """It only joins: the partition may be led by another broker than its coordinator, where a `Follower` fetches."""

    async def _begin_to_consume(self) -> None:
        pass


@dataclass(slots=True)
class Follower:
    group: Group
    fetches: Connection
    offset: int
    commits_s: list[float] = field(default_factory=list)

    async def follow(self, end: asyncio.Future[int]) -> None:
        """Until it has committed the end of the topic."""
        member, plan = self.group.members[0], self.group.plan
        assert member.connection is not None, "it has joined"
        while not end.done() or self.offset < end.result():
            body = requests.fetch(plan.topic, 0, self.offset, WAIT_MS)
            error, offset = requests.read_fetched(await self.fetches.ask(requests.FETCH, body), self.offset)
            if error != requests.NONE:
                raise BrokerRefused(f"Fetch: error code {error}")
            if offset == self.offset:
                continue
            self.offset = offset
            body = requests.offset_commit(plan.group, member.generation, member.member_id, plan.topic, {0: offset})
            sent = time.perf_counter()
            error = requests.read_offset_commit(await member.connection.ask(requests.OFFSET_COMMIT, body))
            self.commits_s.append(time.perf_counter() - sent)
            if error != requests.NONE:
                raise BrokerRefused(f"OffsetCommit: error code {error}")


async def measure_followers(peer: Peer, topic: str, count: int, seconds: float) -> dict[str, float]:
    """The producer's latency, that of commits, and processor time for each fetch with its commit; a fresh topic."""
    [leader_port] = make_topic(peer, topic, 1)
    async with AsyncExitStack() as stack:
        followers = []
        for index in range(count):
            name = f"{topic}-{index}"
            port = await coordinator_port(peer, name)
            plan = GroupPlan(port, name, topic, 1, HEARTBEAT_S, session_ms=30_000)
            group = await stack.enter_async_context(Group(plan, LeanMember))
            connection = await Connection.open(leader_port)
            stack.callback(connection.close)
            followers.append(Follower(group, connection, end_offset(leader_port, topic)))
        # At once: a group's first rebalance waits for further members (`group.initial.rebalance.delay.ms`).
        await asyncio.gather(*(follower.group.form(1) for follower in followers))
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        load = ProduceLoad(BATCH, in_flight=5, seconds=seconds, requests_per_s=REQUESTS_PER_S)
        cpu_before, own_before, started = peer.cpu_seconds(), time.process_time(), time.monotonic()
        following = asyncio.gather(*(follower.follow(end) for follower in followers))
        result = await asyncio.to_thread(put_load, load, leader_port, topic)
        end.set_result(end_offset(leader_port, topic))
        async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
            await following
        elapsed_s = time.monotonic() - started
        cpu_s = peer.cpu_seconds() - cpu_before
    commits_s = [seconds for follower in followers for seconds in follower.commits_s]
    return {
        **latencies(result),
        "fetches_per_s": len(commits_s) / elapsed_s,
        "commit_p50_ms": percentile(commits_s, 0.5) * 1000,
        "commit_p99_ms": percentile(commits_s, 0.99) * 1000,
        "broker_cpu_us_per_fetch": cpu_s / len(commits_s) * 1e6,
        "client_cpu_share": (time.process_time() - own_before) / elapsed_s,
    }


async def coordinator_port(peer: Peer, group: str) -> int:
    """The port of the broker that coordinates the group, once it does."""
    deadline = time.monotonic() + COORDINATOR_WITHIN_S
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(peer.port))
        while (port := wire.coordinator_port(group)) < 0:
            if time.monotonic() > deadline:
                raise BrokerRefused(f"no coordinator for {group} within {COORDINATOR_WITHIN_S:g} s")
            await asyncio.sleep(RETRY_S)
    await wait_for_coordinator(port, group)
    return port


def end_offset(port: int, topic: str) -> int:
    with Wire(port) as wire:
        end = wire.end_offsets(topic, 1)[0]
    assert end is not None, "its leader was asked"
    return end
