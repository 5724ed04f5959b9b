"""The operations that KIP-430 lists, as bits by Kafka's numbers; without an authorizer every client has all."""

from __future__ import annotations

from typing import Final

from ottla.security import acl


def _bits(operations: tuple[acl.Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(acl.TOPIC_OPERATIONS)
GROUP_OPERATIONS: Final = _bits(acl.GROUP_OPERATIONS)
CLUSTER_OPERATIONS: Final = _bits(acl.CLUSTER_OPERATIONS)
