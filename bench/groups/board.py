"""Who consumes what, and since when: how a rebalance's end is known exactly, whenever it is looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """One member's part: a generation (0 where the protocol has none for all), its partitions, and since when."""

    generation: int
    partitions: tuple[int, ...]
    since_s: float


class NotSettled(TimeoutError):
    """The group did not come to rest in time."""


class Board:
    """The members write their shares, the benchmark waits until all partitions are consumed again."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._shares: dict[str, Share] = {}
        self._changed = asyncio.Event()

    def write(self, member: str, generation: int, partitions: Sequence[int]) -> None:
        """The member has just had an answer to a fetch of what it owns (or knows that it owns nothing)."""
        self._shares[member] = Share(generation, tuple(partitions), time.monotonic())
        self._changed.set()

    def erase(self, member: str) -> None:
        """The member owns nothing any more, or has gone."""
        self._shares.pop(member, None)
        self._changed.set()

    def settled_at(self, members: int) -> float | None:
        """When the last of exactly so many members began to consume; None while it is not so.

        Settled: one generation, every partition is consumed exactly once, and no member has two more than another
        (all assignors here see to that; while partitions move one after another it is not so yet).
        """
        shares = self._shares.values()
        if len(shares) != members or len({share.generation for share in shares}) > 1:
            return None
        counts = [len(share.partitions) for share in shares]
        if max(counts) - min(counts) > 1:
            return None
        owned = sorted(partition for share in shares for partition in share.partitions)
        if owned != list(range(self._partitions)):
            return None
        return max(share.since_s for share in shares)

    async def settle(self, members: int, timeout_s: float = 60) -> float:
        """Wait for it and give its time.monotonic().  Raises NotSettled."""
        try:
            async with asyncio.timeout(timeout_s):
                while (settled := self.settled_at(members)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return settled
        except TimeoutError:
            raise NotSettled(f"{members} members did not settle within {timeout_s:g} s") from None
