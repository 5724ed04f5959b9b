"""The partitions of topics that a principal may read or write: lookups in the table that refuse the others.

The check is part of the lookup, so no path of Produce or Fetch has one without the other, and a request that waited is
checked again when it reads again.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ottla.broker.net.access import Access
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionLookup, PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.security.acl import Operation, ResourceType


class WritableTopics:
    """By name, for a produce request."""

    __slots__ = ("_access", "_client_id", "_index")

    is_guarded: ClassVar[bool] = True

    def __init__(self, index: PartitionLookup, access: Access, client_id: str | None) -> None:
        self._index: Final = index
        self._access: Final = access
        self._client_id: Final = client_id

    @property
    def unknown_topic(self) -> ErrorCode:
        return self._index.unknown_topic

    def allows(self, topic: bytes) -> bool:
        return self._access.rights.may_write(topic)

    def get(self, topic: bytes, index: int) -> Partition | None:
        return self._index.get(topic, index) if self._access.rights.may_write(topic) else None

    def absence_error(self, topic: bytes, index: int) -> ErrorCode:
        """Whether the topic exists is not shown to a principal that may not write to it."""
        if self._access.rights.may_write(topic):
            return self._index.absence_error(topic, index)
        name = topic.decode(errors="replace")
        self._access.report(Operation.WRITE, ResourceType.TOPIC, name, ApiKey.PRODUCE, self._client_id)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED


class ReadableTopics:
    """By name or id, for a consumer's fetch."""

    __slots__ = ("_access", "_client_id", "_index", "_names")

    is_guarded: ClassVar[bool] = True

    def __init__(self, table: PartitionTable, access: Access, client_id: str | None, *, by_id: bool) -> None:
        self._index: Final = table.by_id if by_id else table.by_name
        # None: topics are keyed by their names.
        self._names: Final = table.names_by_id if by_id else None
        self._access: Final = access
        self._client_id: Final = client_id

    @property
    def unknown_topic(self) -> ErrorCode:
        return self._index.unknown_topic

    def allows(self, topic: bytes) -> bool:
        name = topic if self._names is None else self._names.get(topic)
        # An unknown id is answered as such: it names nothing.
        return name is None or self._access.rights.may_read(name)

    def get(self, topic: bytes, index: int) -> Partition | None:
        return self._index.get(topic, index) if self.allows(topic) else None

    def absence_error(self, topic: bytes, index: int) -> ErrorCode:
        """Whether the topic exists is not shown to a principal that may not read it, unless it knows the id."""
        if self.allows(topic):
            return self._index.absence_error(topic, index)
        name = topic if self._names is None else self._names.get(topic, b"")
        text = name.decode(errors="replace")
        self._access.report(Operation.READ, ResourceType.TOPIC, text, ApiKey.FETCH, self._client_id)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
