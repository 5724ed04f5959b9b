"""A consumer group that shows how far a stream has come.  The checkpoint decides where it continues, never the
group."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.spark.errors import SparkUserError
from ottla.spark.options.connection import Connection
from ottla.spark.options.offset_spec import Offsets

log = logging.getLogger(__name__)

# A group whose coordinator does not answer must not hold up the query: one attempt is short, and the next one later.
TIMEOUT_MS: Final = 5_000
PAUSE_MS: Final = 30_000


class GroupRefused(SparkUserError):
    """The group of the option `groupId` does not take this query's offsets."""

    hint = "name a group that nothing else is a member of, or leave groupId out"


class GroupProgress:
    """Commits offsets to a group without members."""

    def __init__(self, connection: Connection, group_id: str, clock: Clock, admin: GroupAdmin | None = None) -> None:
        limited = replace(connection, call_timeout_ms=min(connection.call_timeout_ms, TIMEOUT_MS))
        self._cluster = Cluster(connection.bootstrap, limited.client_options)
        self._admin = admin or GroupAdmin(self._cluster)
        self._group_id = group_id
        self._committed: Offsets = {}
        self._clock = clock
        self._next_try_ms = clock.monotonic_ms()

    def commit(self, next_offsets: Offsets) -> None:
        """Nothing when they are committed already.  What fails now is done with a batch after `PAUSE_MS`.

        Raises `GroupRefused` for what no later attempt makes right.
        """
        news = {place: offset for place, offset in next_offsets.items() if self._committed.get(place) != offset}
        if not news or self._clock.monotonic_ms() < self._next_try_ms:
            return
        try:
            self._admin.commit(self._group_id, {place: CommittedOffset(offset) for place, offset in news.items()})
        except ClientError as error:
            if not error.is_retriable:
                raise GroupRefused(f"the option 'groupId': {error}") from error
            self._next_try_ms = self._clock.monotonic_ms() + PAUSE_MS
            log.warning("group.commit_postponed", extra=fields(group=self._group_id, error=str(error)))
            return
        self._committed |= news

    def close(self) -> None:
        self._cluster.close()
