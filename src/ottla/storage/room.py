"""Whether logs take records now, as far as room decides it: one attribute that every append tests."""

from __future__ import annotations

import logging
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.storage.errors import DiskFull, StorageError

_log = logging.getLogger(__name__)

_REFUSED_HINT: Final = "see `disk.full` above it; records are accepted again automatically when there is room"


class Room:
    """What the logs of a directory that take the same records share.  `DirectorySpace` alone closes and opens it."""

    __slots__ = ("is_closed", "refused_count")

    def __init__(self) -> None:
        # Read in every append.
        self.is_closed = False
        # Appends that were refused since it was closed.
        self.refused_count = 0

    def close(self) -> None:
        if not self.is_closed:
            self.refused_count = 0
            self.is_closed = True

    def open(self) -> None:
        self.is_closed = False

    def refusal(self, topic_partition: TopicPartition) -> StorageError:
        """The error of an append while it is closed.  The first one is logged, the others are counted."""
        self.refused_count += 1
        if self.refused_count == 1:
            _log.warning("append.refused", extra=fields(partition=topic_partition, hint=_REFUSED_HINT))
        return DiskFull(f"nothing was written to {topic_partition}: the disk is full")
