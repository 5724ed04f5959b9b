"""The target of `ottla group reset-offsets`: the flags of kafka-consumer-groups as one choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.moments import duration_ms, moment_ms
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Exactly one of these is given; times are ms since the epoch or ms before now."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_time_ms: int | None = None
    by_duration_ms: int | None = None
    from_file: Path | None = None

    def check(self) -> None:
        """Raises UsageError unless exactly one is given."""
        given = [
            self.to_earliest,
            self.to_latest,
            self.to_current,
            self.to_offset is not None,
            self.shift_by is not None,
            self.to_time_ms is not None,
            self.by_duration_ms is not None,
            self.from_file is not None,
        ]
        if sum(given) != 1:
            raise click.UsageError(
                "Give a target: one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
                "--to-datetime, --by-duration, --from-file."
            )


def target_of(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> Target:
    target = Target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_time_ms=None if to_datetime is None else moment_ms(to_datetime, "--to-datetime"),
        by_duration_ms=None if by_duration is None else duration_ms(by_duration, "--by-duration"),
        from_file=from_file,
    )
    target.check()
    return target


def new_offsets(
    cluster: Cluster,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], list[str]]:
    """The new offset of each partition, and notes on clamped ones (offsets stay within the log) and on missing ones.

    `given` are those of a file.
    """
    from ottla.client.fetching.offsets import log_ranges

    ranges = log_ranges(cluster, partitions)
    if target.to_earliest:
        return {each: ranges[each].start for each in partitions}, []
    if target.to_latest:
        return {each: ranges[each].stop for each in partitions}, []
    if target.to_time_ms is not None or target.by_duration_ms is not None:
        return _by_time(cluster, target, ranges), []
    if target.to_offset is not None:
        return _within(dict.fromkeys(partitions, target.to_offset), ranges)
    if target.from_file is not None:
        return _within(given, ranges)
    without = [str(each) for each in partitions if each not in committed]
    if without and target.shift_by is not None:
        raise OttlaError(
            f"{', '.join(without)} has no committed offset to shift", hint="move it with --to-earliest or --to-offset"
        )
    if target.shift_by is not None:
        return _within({each: committed[each] + target.shift_by for each in partitions}, ranges)
    # As in Kafka's tools: a partition without an offset starts with the next record.
    found, notes = _within({each: committed.get(each, ranges[each].stop) for each in partitions}, ranges)
    notes += [f"{name} has no committed offset: the log's end is used" for name in without]
    return found, notes


def _by_time(cluster: Cluster, target: Target, ranges: Mapping[TopicPartition, range]) -> dict[TopicPartition, int]:
    """The first record at or after the time; the end where there is none."""
    from ottla.client.fetching.offsets import list_offsets

    time_ms = target.to_time_ms
    if time_ms is None:
        assert target.by_duration_ms is not None
        time_ms = cluster.clock.now_ms() - target.by_duration_ms
    if time_ms < 0:
        raise OttlaError("the time is before 1970", hint="--to-earliest moves to the oldest record")
    answers = list_offsets(cluster, dict.fromkeys(ranges, time_ms))
    return {each: answer.offset if answer.offset >= 0 else ranges[each].stop for each, answer in answers.items()}


def _within(
    wanted: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, range]
) -> tuple[dict[TopicPartition, int], list[str]]:
    found: dict[TopicPartition, int] = {}
    notes: list[str] = []
    for partition, offset in wanted.items():
        log = ranges[partition]
        found[partition] = min(max(offset, log.start), log.stop)
        if found[partition] != offset:
            notes.append(
                f"{partition}: offset {offset} is outside of the log ({log.start} to {log.stop}); "
                f"{found[partition]} is used"
            )
    return found, notes
