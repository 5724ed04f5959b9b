"""What one fetch request reads from the logs: a pure walk over its partitions, without sockets or waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.partitions.partition_read import LEADER_ONLY, WAITED_OUT, ConsumerReader, PartitionRead, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionLookup
from ottla.protocol.fetch import FetchRequest
from ottla.runtime.steps import parts_of

READ_COMMITTED: Final = 1


class FetchRead(NamedTuple):
    """All partitions' parts.  `is_due`: it must be answered now, however few bytes it holds."""

    topics: list[tuple[bytes, list[PartitionRead]]]
    readable_bytes: int
    is_due: bool


def read_partitions(
    partitions: PartitionLookup,
    request: FetchRequest,
    size_bytes_max: int,
    replica: ReplicaReader | None = None,
    consumer: ConsumerReader = LEADER_ONLY,
    readable_bytes: int = 0,
) -> FetchRead:
    """Read the partitions in request order, at most the request's and `size_bytes_max` bytes.

    `readable_bytes`: what was read of the same request before, and counts.

    The first partition that has any records gives at least one whole batch, so a consumer always progresses (KIP-74).
    `replica`: the follower whose request it is, None for a consumer's, which `consumer` is for.
    """
    may_follow, nearby = consumer
    left_bytes = min(request.max_bytes, size_bytes_max) - readable_bytes
    is_due = False
    topics: list[tuple[bytes, list[PartitionRead]]] = []
    for topic, wanted in request.topics:
        reads: list[PartitionRead] = []
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is None:
                read = PartitionRead(fetch[0], partitions.absence_error(topic, fetch[0]))
            elif replica is not None:
                _, epoch, offset, last_epoch, follower_log_start, limit_bytes = fetch
                read = partition.read_as_replica(
                    replica,
                    epoch,
                    offset,
                    last_epoch,
                    min(limit_bytes, left_bytes),
                    whole_first_batch=readable_bytes == 0,
                    follower_log_start=follower_log_start,
                )
            elif nearby and (elsewhere := partition.read_elsewhere(nearby, fetch[1], fetch[2])) is not None:
                read = elsewhere
                is_due = True
            else:
                _, epoch, offset, last_epoch, _, limit_bytes = fetch
                read = partition.read(
                    epoch,
                    offset,
                    last_epoch,
                    limit_bytes if limit_bytes < left_bytes else left_bytes,
                    whole_first_batch=readable_bytes == 0,
                    may_follow=may_follow,
                )
            if read.run is not None:
                readable_bytes += read.run.length_bytes
                left_bytes -= read.run.length_bytes
            elif read.error_code not in WAITED_OUT or read.diverging is not None:
                is_due = True
            reads.append(read)
        topics.append((topic, reads))
    return FetchRead(topics, readable_bytes, is_due)


def in_parts(request: FetchRequest) -> Iterator[FetchRequest]:
    """The request's partitions in its order, some at a time."""
    for topic, wanted in request.topics:
        for some in parts_of(wanted, PARTITIONS_OF_STEP):
            yield request._replace(topics=[(topic, list(some))])


def ends_in_older_segment(partitions: PartitionLookup, request: FetchRequest, *, as_replica: bool = False) -> bool:
    """Whether some partition has readable records after its run, in a later segment: waiting adds none of them."""
    for topic, wanted in request.topics:
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is not None and partition.ends_in_older_segment(fetch[2], as_replica=as_replica):
                return True
    return False
