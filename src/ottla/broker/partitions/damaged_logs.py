"""Logs in which damage was read: another replica leads, and answers readers, where there is one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.coordination.topics_view import TopicsView
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.runtime.loop_offload import LoopOffload
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)


class DamagedLogs:
    """Distrusts each damaged log; `on_distrusted` is called when the log's mark is on the disk."""

    def __init__(self, topics: Callable[[], TopicsView], on_distrusted: Callable[[TopicPartition], None]) -> None:
        self._topics = topics
        self._on_distrusted = on_distrusted
        # Marks that are being written.
        self._marking: set[asyncio.Task[None]] = set()

    def on_damaged(self, damaged: Log) -> None:
        # Not within the read that found the damage.
        marking = asyncio.get_running_loop().create_task(self._distrust(damaged))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def _distrust(self, damaged: Log) -> None:
        """Let the other replicas have the partition.  One without other replicas serves what can be read."""
        node = self._topics().partition(damaged.topic_partition)
        if node is None or len(node.replicas) < 2 or damaged.is_deleted:
            return
        # At once: nothing is fetched for it, and it is elected nowhere, while the mark is written.
        damaged.distrust()
        try:
            await LoopOffload()(damaged.mark_distrusted)
        except OSError as error:
            log.error("log.not_marked", extra=fields(partition=damaged.topic_partition, error=str(error)))
        self._on_distrusted(damaged.topic_partition)
