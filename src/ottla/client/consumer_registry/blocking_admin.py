"""Groups of the tree for a caller that blocks: one session with ZooKeeper, as a `GroupHome`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from ottla.client.consumer_registry.group_admin import TreeGroups
from ottla.client.groups.group_types import CommittedOffset, GroupDescription, ListedGroup
from ottla.client.wire.errors import BrokerRefused
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.credentials import DigestCredentials
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import BlockingLoop

# It has no ephemeral nodes; a session that is not ended ends soon.
_SESSION_TIMEOUT_MS: Final = 10_000


class TreeGroupAdmin:
    """Use it with `with`.  `digest` is `user:password`.

    Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperRefused`.
    """

    def __init__(self, connect: str, digest: str | None, connection_timeout_ms: int) -> None:
        clock = SystemClock()
        home = ZooKeeperBackend(
            connect,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=connection_timeout_ms,
            digest=None if digest is None else DigestCredentials.parse(digest),
            clock=clock,
        )
        self._loop = BlockingLoop()
        try:
            self._session = self._loop.run(home.connect())
        except BaseException:
            self._loop.close()
            raise
        self._groups = TreeGroups(self._session, clock.now_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._loop.run(self._session.close())
        finally:
            self._loop.close()

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        found = self._loop.run(self._groups.list_groups())
        return [each for each in found if (not states or each.state in states) and (not kinds or each.kind in kinds)]

    def has(self, group_id: str) -> bool:
        return self._loop.run(self._groups.has(group_id))

    def describe(self, group_id: str) -> GroupDescription:
        return self._loop.run(self._groups.describe(group_id))

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return self._loop.run(self._groups.committed(group_id))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Of a running group, too: its owners let go, and start there."""
        self._loop.run(self._groups.commit(group_id, {partition: at.offset for partition, at in offsets.items()}))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        return self._loop.run(self._groups.delete_offsets(group_id, partitions))

    def delete(self, group_id: str) -> None:
        self._loop.run(self._groups.delete(group_id))
