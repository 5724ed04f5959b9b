"""Cuts of followers' logs: where histories part, a log is truncated or started again before it is fetched further."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeVar

from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId
from ottla.observe.events import fields

log = logging.getLogger(__name__)

Cut = Callable[[], Coroutine[object, object, None]]
Followed = TypeVar("Followed")


class LogCuts(Generic[Followed]):
    """The cuts that the answers of one leader require, each in its own task: the disk may take long, and the other
    partitions are fetched meanwhile.

    A cut waits for its turn among those of all leaders.  It is made only if the answer that requires it still counts:
    another leader may have another history.
    """

    __slots__ = ("_is_current", "_leader_id", "_loop", "_on_cut", "_on_failed", "_required_by", "_tasks", "_turns")

    def __init__(
        self,
        leader_id: NodeId,
        loop: asyncio.AbstractEventLoop,
        turns: asyncio.Semaphore,
        is_current: Callable[[Followed, int], bool],
        on_failed: Callable[[Followed, OttlaError | OSError], bool],
        on_cut: Callable[[Followed], None],
    ) -> None:
        """`turns`: how many logs may be cut at once.  `is_current`: whether the answer to this fetch still counts.

        `on_failed`: the disk failed; True when that ends the fetches of the partition.  `on_cut`: the log takes records
        again.
        """
        self._leader_id: Final = leader_id
        self._loop: Final = loop
        self._turns: Final = turns
        self._is_current: Final = is_current
        self._on_failed: Final = on_failed
        self._on_cut: Final = on_cut
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        # The fetch whose answer requires the cut; None once it is being made.
        self._required_by: Final[dict[Followed, int | None]] = {}

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """Of logs that are being cut, or wait for their turn."""
        return frozenset(self._tasks)

    @property
    def has_free_turn(self) -> bool:
        return not self._turns.locked()

    def begin(self, partition: Followed, request_id: int, cut: Cut) -> None:
        """Make the cut, in its turn, that the answer to this fetch requires."""
        self._required_by[partition] = request_id
        task = self._loop.create_task(self._cut_in_turn(partition, request_id, cut))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def holds(self, partition: Followed) -> bool:
        """Whether its log is being cut, or will be when its turn comes.

        A cut that another state made void is forgotten: the partition need not wait for its turn.
        """
        if partition not in self._required_by:
            return False
        request_id = self._required_by[partition]
        if request_id is None or self._is_current(partition, request_id):
            return True
        del self._required_by[partition]
        return False

    async def _cut_in_turn(self, partition: Followed, request_id: int, cut: Cut) -> None:
        async with self._turns:
            if self._required_by.get(partition) != request_id:
                # The answer is void, and the partition is fetched already: see `holds`.
                return
            try:
                if self._is_current(partition, request_id):
                    self._required_by[partition] = None
                    await cut()
            except (OttlaError, OSError) as error:
                if self._on_failed(partition, error):
                    return
            except Exception:
                log.exception("replica_fetcher.bug", extra=fields(leader=self._leader_id))
            finally:
                self._required_by.pop(partition, None)
        # From the leader that it follows by now.
        self._on_cut(partition)
