"""Rates of topics and groups, from two looks at their offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cli.output import table
from ottla.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Look:
    """What the brokers said at a moment: where logs end, and what groups have committed."""

    moment_ms: int
    ends: Mapping[TopicPartition, int]
    committed: Mapping[str, Mapping[TopicPartition, int]]


class TopicRate(NamedTuple):
    topic: str
    partitions_count: int
    records_s: float


class GroupRate(NamedTuple):
    """`lag_records`: of the partitions that the group has committed an offset of."""

    group: str
    topic: str
    records_s: float
    lag_records: int


class Rates(NamedTuple):
    """The fastest first."""

    topics: Sequence[TopicRate]
    groups: Sequence[GroupRate]


def rates_between(before: Look, after: Look) -> Rates:
    """A partition that one of them does not have, and one that was created again, counts as still."""
    passed_s = max(after.moment_ms - before.moment_ms, 1) / 1_000
    return Rates(_topic_rates(before, after, passed_s), _group_rates(before, after, passed_s))


def _topic_rates(before: Look, after: Look, passed_s: float) -> list[TopicRate]:
    added: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for partition, end in after.ends.items():
        counts[partition.topic] += 1
        added[partition.topic] += max(0, end - before.ends.get(partition, end))
    found = [TopicRate(topic, count, added[topic] / passed_s) for topic, count in counts.items()]
    return sorted(found, key=lambda each: (-each.records_s, each.topic))


def _group_rates(before: Look, after: Look, passed_s: float) -> list[GroupRate]:
    found: list[GroupRate] = []
    for group, offsets in after.committed.items():
        earlier = before.committed.get(group, {})
        read: dict[str, int] = defaultdict(int)
        lag: dict[str, int] = defaultdict(int)
        for partition, offset in offsets.items():
            read[partition.topic] += max(0, offset - earlier.get(partition, offset))
            lag[partition.topic] += max(0, after.ends.get(partition, offset) - offset)
        found += [GroupRate(group, topic, count / passed_s, lag[topic]) for topic, count in read.items()]
    return sorted(found, key=lambda each: (-each.records_s, -each.lag_records, each.group, each.topic))


def rates_text(rates: Rates, rows_max: int) -> list[str]:
    """For people: of topics and of groups at most so many rows, the fastest."""
    topics = [(each.topic, each.partitions_count, f"{each.records_s:,.1f}") for each in rates.topics[:rows_max]]
    groups = [(each.group, each.topic, f"{each.records_s:,.1f}", each.lag_records) for each in rates.groups[:rows_max]]
    return [
        *table(("TOPIC", "PARTITIONS", "RECORDS/S"), topics),
        *_more(len(rates.topics), rows_max),
        "",
        *table(("GROUP", "TOPIC", "RECORDS/S", "LAG"), groups),
        *_more(len(rates.groups), rows_max),
    ]


def _more(count: int, rows_max: int) -> Iterable[str]:
    return [f"... and {count - rows_max} more"] if count > rows_max else []


def rates_object(rates: Rates, after: Look) -> dict[str, object]:
    return {
        "moment_ms": after.moment_ms,
        "topics": [each._asdict() for each in rates.topics],
        "groups": [each._asdict() for each in rates.groups],
    }
