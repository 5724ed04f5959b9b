"""ListPartitionReassignments (key 46), v0-v0.

With one broker no replica ever moves: the list is empty, for topics that do not exist too, as in Apache Kafka.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    request: ListPartitionReassignmentsRequest, broker: BrokerContext, call: Call
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
