"""What fetches read from the logs, by a pure walk over partitions, and their responses, with the file runs in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_read import LEADER_ONLY, WAITED_OUT, ConsumerReader, PartitionRead, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionLookup
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.fetch import NO_SESSION, READ_COMMITTED, FetchPartition, FetchRequest, FetchResponseWriter
from ottla.runtime.disk import FileRun
from ottla.runtime.steps import Steps, parts_of

_NO_ERROR: Final = 0

Found = tuple[Partition | None, FetchPartition, int]
"""A partition to read, what is requested of it, and the error of one that is not served here."""

Topics = Sequence[tuple[bytes, Sequence[PartitionRead]]]


class FetchRead(NamedTuple):
    """All partitions' parts.  `is_due`: it must be answered now, however few bytes it holds."""

    topics: list[tuple[bytes, list[PartitionRead]]]
    readable_bytes: int
    is_due: bool


def read_request(
    partitions: PartitionLookup,
    request: FetchRequest,
    size_bytes_max: int,
    replica: ReplicaReader | None = None,
    consumer: ConsumerReader = LEADER_ONLY,
    readable_bytes: int = 0,
) -> FetchRead:
    """Read all partitions that the request names, at most its and `size_bytes_max` bytes; see `read_partitions`."""
    found: list[Found] = []
    for topic, wanted in request.topics:
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is None:
                found.append((None, fetch, partitions.absence_error(topic, fetch[0])))
            else:
                found.append((partition, fetch, _NO_ERROR))
    left_bytes = min(request.max_bytes, size_bytes_max) - readable_bytes
    reads, readable_bytes, is_due = read_partitions(found, left_bytes, replica, consumer, readable_bytes)
    if len(request.topics) == 1:
        return FetchRead([(request.topics[0][0], reads)], readable_bytes, is_due)
    each = iter(reads)
    return FetchRead(
        [(topic, list(islice(each, len(wanted)))) for topic, wanted in request.topics], readable_bytes, is_due
    )


def read_partitions(
    found: Sequence[Found],
    left_bytes: int,
    replica: ReplicaReader | None,
    consumer: ConsumerReader,
    readable_bytes: int = 0,
) -> tuple[list[PartitionRead], int, bool]:
    """Read these partitions in their order: their parts of the response, its bytes, whether it must be sent now.

    At most `left_bytes` are read; `readable_bytes` are what was read of the same request before.  The first partition
    that has any records gives at least one whole batch, so a consumer always progresses (KIP-74).
    `replica`: the follower whose request it is, None for a consumer's, which `consumer` is for.
    """
    may_follow, nearby, reads_committed = consumer
    is_due = False
    reads: list[PartitionRead] = []
    for partition, fetch, error_code in found:
        index, epoch, offset, last_epoch, follower_log_start, limit_bytes = fetch
        if limit_bytes > left_bytes:
            limit_bytes = left_bytes
        if partition is None:
            read = PartitionRead(index, error_code)
        elif replica is not None:
            read = partition.read_as_replica(
                replica,
                epoch,
                offset,
                last_epoch,
                limit_bytes,
                whole_first_batch=readable_bytes == 0,
                follower_log_start=follower_log_start,
            )
        elif nearby and (elsewhere := partition.read_elsewhere(nearby, epoch, offset)) is not None:
            read = elsewhere
            is_due = True
        else:
            read = partition.read(
                epoch,
                offset,
                last_epoch,
                limit_bytes,
                whole_first_batch=readable_bytes == 0,
                may_follow=may_follow,
                reads_committed=reads_committed,
            )
        if read.run is not None:
            readable_bytes += read.run.length_bytes
            left_bytes -= read.run.length_bytes
        elif read.error_code not in WAITED_OUT or read.diverging is not None:
            is_due = True
        reads.append(read)
    return reads, readable_bytes, is_due


def in_parts(request: FetchRequest) -> Iterator[FetchRequest]:
    """The request's partitions in its order, some at a time."""
    for topic, wanted in request.topics:
        for some in parts_of(wanted, PARTITIONS_OF_STEP):
            yield request._replace(topics=[(topic, list(some))])


def ends_in_older_segment(partitions: PartitionLookup, request: FetchRequest, *, as_replica: bool = False) -> bool:
    """Whether some partition has readable records after its run, in a later segment: waiting adds none of them."""
    reads_committed = not as_replica and request.isolation_level == READ_COMMITTED
    for topic, wanted in request.topics:
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is not None and partition.ends_in_older_segment(
                fetch[2], as_replica=as_replica, reads_committed=reads_committed
            ):
                return True
    return False


def fetch_response(
    request: FetchRequest,
    version: int,
    correlation_id: int,
    topics: Topics,
    *,
    session_id: int = NO_SESSION,
    error_code: int = _NO_ERROR,
    leaders: CurrentLeaders | None = None,
    into: FetchResponseWriter[FileRun] | None = None,
) -> Sequence[Piece]:
    """The whole response frame; `leaders`, from v16 on, are those of partitions that are led elsewhere.

    `into`: write partitions of a topic that it has started, and no frame.
    """
    is_whole = into is None
    if into is None:
        # Annotated, not subscripted: calling a subscripted class costs a microsecond more.
        writer: FetchResponseWriter[FileRun] = FetchResponseWriter(
            correlation_id, version, topics_count=len(topics), error_code=error_code, session_id=session_id
        )
    else:
        writer = into
    # Readers of committed records get the list of aborted transactions, which may be empty; others get null.
    reads_committed = request.isolation_level == READ_COMMITTED
    for topic, reads in topics:
        if is_whole:
            writer.topic(topic, len(reads))
        for index, code, high_watermark, last_stable_offset, log_start_offset, diverging, aborted, run, near in reads:
            writer.partition(
                index,
                code,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                aborted=aborted if reads_committed else None,
                diverging=diverging,
                leader=leaders.by_partition.get((topic, index)) if code and leaders is not None else None,
                preferred_replica=near,
                records=run,
                records_length=0 if run is None else run.length_bytes,
            )
    if is_whole:
        return writer.finish(() if leaders is None else leaders.endpoints)
    return ()


def joined_steps(parts: Iterable[Topics]) -> Steps[Topics]:
    """Each topic once, with the partitions of all its parts."""
    topics: dict[bytes, list[PartitionRead]] = {}
    for part in parts:
        for topic, reads in part:
            topics.setdefault(topic, []).extend(reads)
        yield
    return list(topics.items())


def fetch_response_steps(
    request: FetchRequest,
    version: int,
    correlation_id: int,
    topics: Topics,
    session_id: int,
    leaders: CurrentLeaders | None,
) -> Steps[Sequence[Piece]]:
    """`fetch_response` in steps."""
    writer: FetchResponseWriter[FileRun] = FetchResponseWriter(
        correlation_id, version, topics_count=len(topics), session_id=session_id
    )
    for topic, reads in topics:
        writer.topic(topic, len(reads))
        for some in parts_of(reads, PARTITIONS_OF_STEP):
            fetch_response(request, version, correlation_id, [(topic, some)], leaders=leaders, into=writer)
            yield
    return writer.finish(() if leaders is None else leaders.endpoints)
