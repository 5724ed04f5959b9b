"""A member of the new protocol (KIP-848): heartbeats bring its assignment, and report what it owns."""

from __future__ import annotations

import asyncio
import uuid

from bench.groups import requests
from bench.groups.connection import Connection
from bench.groups.consumer_requests import (
    CONSUMER_GROUP_HEARTBEAT,
    FENCED_MEMBER_EPOCH,
    LEAVING,
    Answer,
    Owned,
    heartbeat,
    read_heartbeat,
)
from bench.groups.member import Member
from bench.wire import BrokerRefused


class ConsumerMember(Member):
    """Gives up what it must at once, as a client without work in hand does, and says so in its next heartbeat.

    That one follows immediately; the others come at the interval that the coordinator asks for.
    """

    _topic_id = b""
    _has_share = False

    async def leave(self) -> None:
        await self._stop()
        assert self.connection is not None, "it has joined"
        answer = await self._ask(heartbeat(self.plan.group, self.member_id, LEAVING))
        self.connection.close()
        if answer.error_code != requests.NONE:
            raise BrokerRefused(f"leaving: error code {answer.error_code} {answer.message}")

    async def _run(self) -> None:
        self.connection = await Connection.open(self.plan.port)
        self.member_id = str(uuid.uuid4())
        while True:
            answer = await self._join_group()
            while answer.error_code == requests.NONE:
                self.generation = answer.epoch
                if answer.assignment is not None and await self._take(answer.assignment):
                    answer = await self._say_owned()
                else:
                    await asyncio.sleep(answer.interval_s)
                    answer = await self._ask(heartbeat(self.plan.group, self.member_id, self.generation))
            self._board.erase(self.name)
            if answer.error_code not in (requests.UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, *requests.LOADING):
                raise BrokerRefused(f"ConsumerGroupHeartbeat: error code {answer.error_code} {answer.message}")

    async def _join_group(self) -> Answer:
        self.partitions = []
        self._has_share = False
        plan = self.plan
        return await self._ask(heartbeat(plan.group, self.member_id, 0, plan.topic, plan.rebalance_ms, []))

    async def _take(self, assignment: Owned) -> bool:
        """What is new is fetched from before the board says that it is consumed.  False: nothing changes."""
        wanted = sorted(assignment.partitions)
        if self._has_share and wanted == self.partitions:
            return False
        self._has_share = True
        is_new = not set(wanted) <= set(self.partitions)
        self._topic_id = assignment.topic_id or self._topic_id
        self.partitions = wanted
        if is_new:
            await self._begin_to_consume()
        self._board.write(self.name, 0, wanted)
        return True

    async def _say_owned(self) -> Answer:
        owned = [Owned(self._topic_id, self.partitions)] if self.partitions else []
        # Without the subscription: a heartbeat that says everything is answered with the whole assignment again.
        return await self._ask(heartbeat(self.plan.group, self.member_id, self.generation, owned=owned))

    async def _ask(self, body: bytes) -> Answer:
        return read_heartbeat(await self._connected().ask(CONSUMER_GROUP_HEARTBEAT, body, is_flexible=True))
