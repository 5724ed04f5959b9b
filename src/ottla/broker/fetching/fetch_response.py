"""The response to a fetch: what the partitions returned, as pieces with the file runs in their positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.partition_read import PartitionRead
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.fetch import NO_SESSION, READ_COMMITTED, FetchRequest, FetchResponseWriter
from ottla.runtime.disk import FileRun
from ottla.runtime.steps import Steps, parts_of

_NO_ERROR: Final = 0

Topics = Sequence[tuple[bytes, Sequence[PartitionRead]]]


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
