"""Keeps the generation of this broker's data directory, in the directory and in the tree (coordination/generations.py).

It moves with each registration, soon after a change of an in-sync set that this broker is in, and from time to time
while records are stored; once more at an ordered stop.  A copy of the directory that is put back in its place has a
lower generation than the tree, unless it was made after the last move: then it may lack what was stored since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.coordination.generations import (
    NO_GENERATION,
    GenerationNode,
    HeldGeneration,
    SeenGeneration,
    generation_write,
    is_stale,
    next_generation,
    read_generation,
)
from ottla.coordination.topics_view import NO_TOPICS, TopicsView
from ottla.coordination.tree import BadVersion, NodeExists, NoNode, Operation, Tree
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, uuid_to_text
from ottla.observe.events import fields
from ottla.runtime.disk import Disk
from ottla.runtime.loop_offload import TimersAndTasks
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import Offload
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, log_completeness
from ottla.storage.errors import StaleDirectory, StorageError, lacks_room

log = logging.getLogger(__name__)

# What is stored within this time before a crash is not protected from a copy that was made within it.
MOVE_INTERVAL_MS: Final = 10_000
# Between two moves: a start may change ten thousand in-sync sets.
PAUSE_MS: Final = 1_000
LAST_MOVE_WITHIN_S: Final = 2.0


class Registered(Protocol):
    """The part of the lifecycle that this module needs."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def is_registered(self) -> bool: ...


class DirectoryGeneration:
    """`check` before the logs are opened, `write` with each registration, `start` after the first, `stop` at the end.

    `make_room` is called in another thread when the disk is full: whether there is room now.
    """

    def __init__(
        self,
        tree: Tree,
        lifecycle: Registered,
        disk: Disk,
        data_dir: str,
        make_room: Callable[[], bool],
        loop: TimersAndTasks,
        offload: Callable[[], Offload],
    ) -> None:
        self._tree = tree
        self._lifecycle = lifecycle
        self._node_id = lifecycle.node_id
        self._disk = disk
        self._data_dir = data_dir
        self._make_room = make_room
        self._loop = loop
        self._offload = offload
        # Of the file and the node: a registration and a move write both.
        self._moving = Mutex()
        self._stored: Callable[[], object] | None = None
        self._stored_at_move: object = None
        self._view: TopicsView = NO_TOPICS
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_soon = False
        self._is_stale = False
        self._problem = ""

    async def check(self) -> None:
        """Raises `StaleDirectory`; nothing is written."""
        await self._judged()

    async def write(self) -> Sequence[Operation]:
        """Move the directory's generation, durably; returns the operation that moves the tree's with the registration.

        A full disk does not keep a broker from its readers: then there is none, and a move follows when there is room.
        Raises `StaleDirectory`, `StorageError`.
        """
        async with self._moving:
            held, node = await self._judged()
            generation = next_generation(held, node.seen)
            self._stored_at_move = None if self._stored is None else self._stored()
            try:
                await self._offload()(lambda: self._write_with_room(generation))
            except OSError as error:
                is_newest = (
                    node.seen is not None and node.seen.directory_id == held.directory_id and held.has_complete_logs
                )
                if not (lacks_room(error) and is_newest):
                    raise StorageError(f"the generation of {self._data_dir} cannot be recorded: {error}") from error
                self._report(f"{error}")
                self._is_soon = True
                return ()
            self._is_soon = False
            return (self._operation(held, generation, node.version),)

    async def _judged(self) -> tuple[HeldGeneration, GenerationNode]:
        held = await self._offload()(self._held)
        node = await read_generation(self._tree, self._node_id)
        self._is_stale = is_stale(held, node.seen)
        if self._is_stale and node.seen is not None:
            error = _stale(self._data_dir, self._node_id, held, node.seen)
            log.error("directory.found_stale", extra=fields(reason=str(error), hint=error.hint))
            raise error
        return held, node

    def _held(self) -> HeldGeneration:
        return HeldGeneration(
            directory_identity.directory_id(self._disk, self._data_dir),
            checkpoints.read_generation(self._disk, self._data_dir),
            log_completeness.has_complete_logs(self._disk, self._data_dir),
        )

    def _write_with_room(self, generation: int) -> None:
        try:
            checkpoints.write_generation(self._disk, self._data_dir, generation)
        except OSError as error:
            if not (lacks_room(error) and self._make_room()):
                raise
            checkpoints.write_generation(self._disk, self._data_dir, generation)

    def _operation(self, held: HeldGeneration, generation: int, version: int) -> Operation:
        return generation_write(self._node_id, SeenGeneration(held.directory_id, generation), version)

    def start(self, stored: Callable[[], object]) -> None:
        """Move from time to time from now on.  `stored`: a value that is another one after records were stored."""
        self._stored = stored
        self._arm(MOVE_INTERVAL_MS)

    def on_view(self, view: TopicsView) -> None:
        """Move soon if an in-sync set of this broker changed: a copy of before may lack what it joined with."""
        before, self._view = self._view, view
        for name, topic in view.by_name.items():
            former = before.by_name.get(name)
            if former is topic:
                continue
            known = {} if former is None else {each.partition_index: each.state.in_sync for each in former.partitions}
            if any(
                self._node_id in each.state.in_sync_nodes() and known.get(each.partition_index) != each.state.in_sync
                for each in topic.partitions
            ):
                self.move_soon()
                return

    def move_soon(self) -> None:
        if not self._is_soon and self._stored is not None:
            self._is_soon = True
            if self._task is None:
                self._arm(PAUSE_MS)

    async def stop(self) -> None:
        """Move for the last time, if records were stored since: a copy of a running broker must not pass for what an
        ordered stop leaves.
        """
        stored, self._stored = self._stored, None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task
        if stored is not None and (self._is_soon or stored() != self._stored_at_move):
            try:
                async with asyncio.timeout(LAST_MOVE_WITHIN_S):
                    await self._move()
            except TimeoutError:
                self._report("the tree does not answer")

    def _arm(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._stored is not None:
            self._task = self._loop.create_task(self._move_if_due(self._stored), name="directory-generation")

    async def _move_if_due(self, stored: Callable[[], object]) -> None:
        has_failed = False
        try:
            now = stored()
            if self._is_soon or now != self._stored_at_move:
                before, self._stored_at_move = self._stored_at_move, now
                self._is_soon = False
                has_failed = not await self._move()
                if has_failed:
                    # What counts is the last move that was made.
                    self._stored_at_move = before
                    # An in-sync set may have made it due, or a registration on a full disk: nothing was stored then.
                    self._is_soon = True
        except Exception:
            log.exception("directory_generation.bug")
        finally:
            self._task = None
            if self._stored is not None:
                # An attempt syncs: none each second while the disk or the tree is in trouble.
                self._arm(PAUSE_MS if self._is_soon and not has_failed else MOVE_INTERVAL_MS)

    async def _move(self) -> bool:
        """Whether the generation moved in both places; a failure is reported only."""
        async with self._moving:
            if self._is_stale or not self._lifecycle.is_registered:
                return False
            try:
                held, node = await self._judged()
                generation = next_generation(held, node.seen)
                await self._offload()(lambda: checkpoints.write_generation(self._disk, self._data_dir, generation))
                await self._tree.multi([self._operation(held, generation, node.version)])
            except (BadVersion, NodeExists, NoNode) as error:
                # A late write of this broker's own, or another directory took over, which the next attempt finds.
                self._report(str(error))
                return False
            except (OttlaError, OSError) as error:
                self._report(str(error))
                return False
            self._problem = ""
            return True

    def _report(self, problem: str) -> None:
        # The same problem in each interval is one line.
        if problem != self._problem:
            log.warning("generation.not_moved", extra=fields(path=self._data_dir, error=problem))
        self._problem = problem


def _stale(path: str, node_id: NodeId, held: HeldGeneration, seen: SeenGeneration) -> StaleDirectory:
    own = "it has none" if held.generation == NO_GENERATION else f"its generation is {held.generation}"
    if held.directory_id != seen.directory_id:
        other = uuid_to_text(seen.directory_id)
        problem = (
            f"{path} is not the data directory that broker {node_id} used last: its directory.id is "
            f"{uuid_to_text(held.directory_id)}, the cluster has seen {other} in generation {seen.generation}"
        )
    else:
        problem = (
            f"{path} is a copy of an earlier time: {own}, and the cluster has seen generation {seen.generation} "
            f"of broker {node_id}"
        )
    return StaleDirectory(
        f"{problem}; it may lack records that were acknowledged",
        hint="put the newest directory back; where it is lost, start with a new --data-dir, or let this copy rejoin as "
        f"a replica that the others refill: `ottla cluster rejoin --data-dir {path}`",
    )
