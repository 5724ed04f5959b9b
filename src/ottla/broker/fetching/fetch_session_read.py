"""What one response of a fetch session holds: a walk over its candidates and those that are waited out."""

from __future__ import annotations

from itertools import chain, islice
from typing import Final, NamedTuple

from ottla.broker.fetching.fetch_read import FetchRead
from ottla.broker.fetching.fetch_session import FetchSession, SessionPartition
from ottla.broker.net.limits import SESSION_READS_MAX
from ottla.broker.partitions.partition_read import LEADER_ONLY, WAITED_OUT, ConsumerReader, PartitionRead, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionLookup
from ottla.model.error_code import ErrorCode
from ottla.protocol.fetch import NO_PREFERRED_REPLICA, FetchRequest

_NOT_AVAILABLE: Final = int(ErrorCode.OFFSET_NOT_AVAILABLE)


class SessionRead(NamedTuple):
    """The partitions that must be in the response, in order of service; see `FetchRead` for the rest.

    `would_not_grow`: some run ends before its partition's readable end, in an older segment: waiting adds nothing.
    `has_news`: some partition has no records for the reader, but ends that it was not sent yet.
    """

    reads: list[tuple[SessionPartition, PartitionRead]]
    readable_bytes: int
    is_due: bool
    would_not_grow: bool
    has_news: bool = False

    def by_topic(self) -> list[tuple[bytes, list[PartitionRead]]]:
        """As a response lists them."""
        topics: dict[bytes, list[PartitionRead]] = {}
        for entry, read in self.reads:
            topics.setdefault(entry.topic, []).append(read)
        return list(topics.items())


def read_session(
    partitions: PartitionLookup,
    session: FetchSession,
    limit_bytes: int,
    *,
    reads_committed: bool = False,
    replica: ReplicaReader | None = None,
    consumer: ConsumerReader = LEADER_ONLY,
) -> SessionRead:
    """Read the candidates, at most `limit_bytes`; those whose part would be empty are settled.

    Those that are waited out are read after them, as many as one response has room for.

    The first that has any records gives at least one whole batch (KIP-74).  `replica`: the follower whose session it
    is, None for a consumer's.  Of a settled partition the follower has everything, and its position is known.
    """
    left_bytes = limit_bytes
    readable_bytes = 0
    is_due = has_news = False
    may_follow, nearby = consumer
    reads: list[tuple[SessionPartition, PartitionRead]] = []
    # More than are read at once come with the next response.  For those that are waited out it need not come early.
    would_not_grow = len(session.candidates) > SESSION_READS_MAX
    for entry in list(islice(chain(session.candidates, session.waited_out), SESSION_READS_MAX)):
        partition = entry.find_partition(partitions)
        if isinstance(partition, ErrorCode):
            reads.append((entry, PartitionRead(entry.index, partition)))
            is_due = True
            continue
        _, epoch, offset, last_epoch, follower_log_start, partition_limit_bytes = entry.fetch
        elsewhere = partition.read_elsewhere(nearby, epoch, offset) if nearby else None
        if elsewhere is not None:
            reads.append((entry, elsewhere))
            is_due = True
            continue
        size_bytes_max = min(partition_limit_bytes, left_bytes)
        if replica is None:
            read = partition.read(
                epoch,
                offset,
                last_epoch,
                size_bytes_max,
                whole_first_batch=readable_bytes == 0,
                may_follow=may_follow,
            )
        else:
            read = partition.read_as_replica(
                replica,
                epoch,
                offset,
                last_epoch,
                size_bytes_max,
                whole_first_batch=readable_bytes == 0,
                follower_log_start=follower_log_start,
            )
        if session.waited_out and read.error_code != _NOT_AVAILABLE:
            session.add_candidate(entry)
        if read.run is not None:
            length_bytes = read.run.length_bytes
            readable_bytes += length_bytes
            left_bytes -= length_bytes
            would_not_grow = would_not_grow or partition.ends_in_older_segment(offset, as_replica=replica is not None)
        elif read.error_code not in WAITED_OUT or read.diverging is not None:
            is_due = True
        elif read.error_code:
            # The error is sent when the fetch is answered.
            if entry not in session.waited_out:
                session.wait_out(entry)
        elif replica is not None and 0 <= follower_log_start < read.log_start_offset:
            # At once: a deletion of records may wait until every replica has made it.
            is_due = True
        elif entry.is_known(read):
            if entry.is_at_end(read):
                session.settle(entry)
            # Else it has records for which there was no room, or that are not committed: it stays a candidate.
            continue
        else:
            has_news = True
        reads.append((entry, read))
    return SessionRead(reads, readable_bytes, is_due, would_not_grow, has_news)


def note_sent(session: FetchSession, read: SessionRead) -> None:
    """The response has been made: the next one leaves out what has not changed since."""
    for entry, part in read.reads:
        entry.note_sent(part)
        if part.error_code or part.preferred_replica != NO_PREFERRED_REPLICA:
            # Sent each time, after those that were not read.
            if part.error_code == _NOT_AVAILABLE and entry in session.waited_out:
                session.wait_out(entry)
            else:
                session.move_to_end(entry)
            continue
        if part.run is not None:
            session.move_to_end(entry)
        elif part.diverging is None and entry.is_at_end(part):
            session.settle(entry)


def fill_session(partitions: PartitionLookup, session: FetchSession, request: FetchRequest, read: FetchRead) -> None:
    """Begin a session with a full request and what its response holds; others may have run since that was read."""
    reads: list[tuple[SessionPartition, PartitionRead]] = []
    for (topic, wanted), (_, parts) in zip(request.topics, read.topics, strict=True):
        for fetch, part in zip(wanted, parts, strict=True):
            entry = session.put(topic, fetch)
            entry.find_partition(partitions)
            reads.append((entry, part))
    note_sent(session, SessionRead(reads, 0, False, False))
    for entry, part in reads:
        if not entry.is_still(part):
            # It will not wake the session for what has moved already.
            session.add_candidate(entry)
