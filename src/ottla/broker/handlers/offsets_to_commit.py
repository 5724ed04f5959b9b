"""The offsets that a request commits, and their places in its answer: OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ottla.coordination.topics_view import TopicsView
from ottla.groups.commands import OffsetToCommit
from ottla.model.error_code import ErrorCode
from ottla.runtime.steps import Steps

# A batch in the log; more are committed in several, one after the other.
OFFSETS_OF_BATCH: Final = 500


class RequestedPartition(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class RequestedTopic(Protocol):
    name: str

    @property
    def partitions(self) -> Sequence[RequestedPartition]: ...


class AnsweredPartition(Protocol):
    error_code: int


class SortedOffsets(NamedTuple):
    """`topics` are the answer, with the errors of unknown partitions; `accepted` the places of `offsets` in it."""

    topics: list[Any]
    offsets: list[OffsetToCommit]
    accepted: list[AnsweredPartition]

    def parts(self) -> list[Sequence[OffsetToCommit]]:
        """What is committed at once."""
        starts = range(0, len(self.offsets), OFFSETS_OF_BATCH)
        return [self.offsets[start : start + OFFSETS_OF_BATCH] for start in starts]

    def place_errors(self, errors: Sequence[ErrorCode]) -> Steps[None]:
        for partition, error in zip(self.accepted, errors, strict=True):
            partition.error_code = error
            yield


def sort_offsets(
    topics: Sequence[RequestedTopic],
    known: TopicsView,
    new_topic: Callable[[str, list[Any]], Any],
    new_partition: Callable[[int, int], AnsweredPartition],
) -> Steps[SortedOffsets]:
    """`new_topic` and `new_partition` make the elements of the answer."""
    found = SortedOffsets([], [], [])
    for topic in topics:
        of_name = known.by_name.get(topic.name)
        partitions_count = 0 if of_name is None else len(of_name.partitions)
        answered: list[AnsweredPartition] = []
        found.topics.append(new_topic(topic.name, answered))
        yield
        for wanted in topic.partitions:
            yield
            index = wanted.partition_index
            if not 0 <= index < partitions_count:
                answered.append(new_partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            place = new_partition(index, ErrorCode.NONE)
            answered.append(place)
            found.accepted.append(place)
            found.offsets.append(
                OffsetToCommit(
                    topic.name,
                    index,
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata or "",
                )
            )
    return found
