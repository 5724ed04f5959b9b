"""Finding a partition for a request, with the checks that every reading API makes (KIP-320)."""

from __future__ import annotations

from ottla.broker.context import BrokerContext
from ottla.broker.partitions.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NO_LEADER_EPOCH


def find_partition(
    context: BrokerContext, topic_name: str, index: int, current_leader_epoch: int = NO_LEADER_EPOCH
) -> Partition | ErrorCode:
    """The partition, or the error that the request gets: not here, not open, not led, or in another leader epoch."""
    partition = context.partitions.find(topic_name, index)
    if partition is None:
        return context.partitions.absence_error(topic_name, index)
    error = partition.leadership_error(current_leader_epoch)
    if not error and not context.brokers.may_lead:
        # The process was paused until its lease was over, and has not suspended its partitions yet.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode(error) if error else partition


def storage_error_code(error: OttlaError) -> ErrorCode:
    """The error code of a failure to read a log; bad bytes in a batch are not the peer's fault here."""
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, WireError) else error.error_code
