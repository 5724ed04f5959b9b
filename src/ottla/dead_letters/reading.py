"""Messages of a topic between offsets, and the letters among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.messages import Message, messages_of
from ottla.client.fetching.offsets import log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.dead_letters.letter import DeadLetter, NotADeadLetter, letter_of
from ottla.model.identifiers import TopicPartition
from ottla.records.record import check_batch
from ottla.records.record_run import read_runs


class StoredLetter(NamedTuple):
    """A message of a dead-letter topic, and the letter that it is; None: it is none."""

    message: Message
    letter: DeadLetter | None


def messages_between(
    cluster: Cluster, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Iterator[Message]:
    """The messages from `first` up to `ends` (exclusive) that are still there, each partition's in order."""
    positions = {place: offset for place, offset in first.items() if offset < ends[place]}
    if not positions:
        return
    with Fetcher(cluster, positions, ends) as fetcher:
        while not fetcher.is_finished:
            try:
                fetched = fetcher.poll(cluster.options.request_timeout_ms)
            except OffsetOutOfRange as error:
                # Retention was faster.
                place = error.partition
                log_start = log_ranges(cluster, [place])[place].start
                fetcher.seek(place, log_start if log_start > error.offset else ends[place])
                continue
            for part in fetched:
                place = part.partition
                for batch in part.batches():
                    if check_batch(batch).is_control:
                        continue
                    for run in read_runs(batch):
                        for message in messages_of(place.topic, place.partition, run.from_offset(part.fetch_offset)):
                            if message.offset < ends[place]:
                                yield message


def letters_of(cluster: Cluster, topic: str) -> Iterator[StoredLetter]:
    """All that a dead-letter topic has now.  Raises `UnknownTopic`."""
    cluster.forget([topic])
    logs = log_ranges(cluster, [TopicPartition(topic, number) for number in cluster.partitions(topic)])
    first = {place: log.start for place, log in logs.items()}
    for message in messages_between(cluster, first, {place: log.stop for place, log in logs.items()}):
        yield StoredLetter(message, letter_or_none(message))


def message_at(cluster: Cluster, place: TopicPartition, offset: int) -> Message | None:
    """The message at this offset; None when there is none (any more)."""
    log = log_ranges(cluster, [place])[place]
    if not log.start <= offset < log.stop:
        return None
    return next(messages_between(cluster, {place: offset}, {place: offset + 1}), None)


def letter_or_none(message: Message) -> DeadLetter | None:
    """None for a message that is no letter."""
    try:
        return letter_of(message)
    except NotADeadLetter:
        return None
