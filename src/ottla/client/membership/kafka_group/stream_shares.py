"""Which of a consumer's own streams reads which of the partitions that the group has given it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.consumers.share import share
from ottla.consumers.stream_id import StreamId


def spread(
    partitions: Iterable[int], streams_count: int, consumer_id: str, present: Mapping[int, StreamId]
) -> dict[int, StreamId]:
    """A stream for each partition of one topic; the sizes differ by one at most.

    A partition stays with its stream as far as that allows; where nothing is present, each stream gets a run.
    """
    wanted = sorted(partitions)
    streams = [StreamId(consumer_id, number) for number in range(streams_count)]
    by_stream: dict[StreamId, list[int]] = {stream: [] for stream in streams}
    for partition in wanted:
        stream = present.get(partition)
        if stream in by_stream:
            by_stream[stream].append(partition)
    # The streams with most partitions get the larger shares, so that the fewest move.
    fullest_first = sorted(streams, key=lambda stream: (-len(by_stream[stream]), stream))
    sizes = sorted(_sizes(len(wanted), streams), reverse=True)
    chosen = {
        partition: stream
        for stream, size in zip(fullest_first, sizes, strict=True)
        for partition in by_stream[stream][:size]
    }
    room = {stream: size - min(size, len(by_stream[stream])) for stream, size in zip(fullest_first, sizes, strict=True)}
    free = iter(partition for partition in wanted if partition not in chosen)
    for stream in streams:
        for _ in range(room[stream]):
            chosen[next(free)] = stream
    return chosen


def _sizes(partitions_count: int, streams: list[StreamId]) -> list[int]:
    counts = dict.fromkeys(streams, 0)
    for stream in share(partitions_count, streams).values():
        counts[stream] += 1
    return list(counts.values())
