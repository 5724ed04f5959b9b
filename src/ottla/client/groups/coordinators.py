"""Which broker coordinates a group: looked up once, and again after it has moved."""

from __future__ import annotations

from typing import Final

from ottla.client.groups.group_types import Coordinator
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP_KEY_TYPE: Final = 0
_COORDINATOR_KEYS_FROM: Final = 4  # KIP-699


class Coordinators:
    """The coordinators of groups of `cluster`.  One attempt for each call: the caller tries again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Coordinator] = {}

    def of(self, group_id: str, deadline: Deadline) -> Coordinator:
        """Raises ClientError."""
        if group_id not in self._known:
            self._known[group_id] = self._find(group_id, deadline)
        return self._known[group_id]

    def connect(self, group_id: str, deadline: Deadline) -> Connection:
        """The cluster's own connection to the group's coordinator.  Raises ClientError."""
        coordinator = self.of(group_id, deadline)
        if coordinator.node_id not in self._cluster.info.brokers:
            self._cluster.refresh([], deadline=deadline)
        return self._cluster.connect_broker(coordinator.node_id, deadline)

    def forget(self, group_id: str) -> None:
        """It does not answer, or says that it is not the coordinator: it is looked up before its next use."""
        self._known.pop(group_id, None)

    def _find(self, group_id: str, deadline: Deadline) -> Coordinator:
        connection = self._cluster.connect_any(deadline)
        if connection.version_of(ApiKey.FIND_COORDINATOR) < _COORDINATOR_KEYS_FROM:
            request = FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY_TYPE)
        else:
            request = FindCoordinatorRequest(key_type=_GROUP_KEY_TYPE, coordinator_keys=[group_id])
        answer = connection.call(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline)
        row = answer.coordinators[0] if answer.coordinators else answer
        if row.error_code:
            raise BrokerRefused(error_code_of(row.error_code), f"the coordinator of group {group_id}")
        return Coordinator(row.node_id, row.host, row.port)
