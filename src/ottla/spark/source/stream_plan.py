"""The plan of a micro-batch, from the offsets before it and what the cluster has now.  Pure.

What is lost is found here only where topics and logs as a whole show it: a topic that was deleted or recreated, a log
that ends before what was read.  Records that retention deleted are found by the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from ottla.lost_offsets import UNKNOWN_END, LostRange
from ottla.model.identifiers import TopicPartition, uuid_from_text, uuid_to_text
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.errors import BadCheckpoint
from ottla.spark.options.offset_spec import Offsets, from_dict, to_dict

# What pyspark makes of the checkpoint's JSON.
CheckpointDict = dict[str, Any]

OURS: Final = "$ottla"
UNRESOLVED: Final[Mapping[str, Any]] = {OURS: {"start": "unresolved"}}


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """What a stream's checkpoint holds of its topics.

        {"clicks": {"0": 70, "1": 30},
         "$ottla": {"cluster": "u8…", "ids": {"clicks": "bX…"}, "begin": {"clicks": {"1": 0}}}}

    The next offset of each partition, as the official connector writes it, and below a name that no topic can have: the
    cluster, the topics' ids, and `begin`, the first offset of each partition that the offsets before do not have.  So a
    batch can be planned again, the first one too, without a question whose answer has changed.  Spark asks for the
    initial offset several times, and once more for each replay of the first batch: it is `UNRESOLVED`, and the end of
    the first batch says where that began.  Checkpoints of earlier versions have the offsets alone.

    `topic_ids` has no topic whose id is not known; `cluster_id` is empty where it is not.
    """

    next_offsets: Offsets
    cluster_id: str = ""
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    begin: Offsets = field(default_factory=dict)

    def is_same_topic(self, other: StreamOffsets, topic: str) -> bool:
        """Whether the topic of this name is the same one in both, as far as they know.

        The id decides: a cluster may get another one when its brokers are moved.
        """
        mine, others = self.topic_ids.get(topic), other.topic_ids.get(topic)
        if mine is not None and others is not None:
            return mine == others
        if mine is None and others is None and self.cluster_id and other.cluster_id:
            return self.cluster_id == other.cluster_id
        return True

    def knows_id(self, topic: str) -> bool:
        return topic in self.topic_ids


def to_checkpoint(offsets: StreamOffsets) -> CheckpointDict:
    """In a fixed order: Spark compares offsets as text."""
    ours: CheckpointDict = {}
    if offsets.cluster_id:
        ours["cluster"] = offsets.cluster_id
    if offsets.topic_ids:
        ours["ids"] = {topic: uuid_to_text(topic_id) for topic, topic_id in sorted(offsets.topic_ids.items())}
    if offsets.begin:
        ours["begin"] = to_dict(offsets.begin)
    plain: CheckpointDict = {**to_dict(offsets.next_offsets)}
    return {**plain, OURS: ours} if ours else plain


def from_checkpoint(checkpoint: Mapping[str, Any]) -> StreamOffsets | None:
    """None: not resolved yet.  Raises `BadCheckpoint`."""
    try:
        ours = checkpoint.get(OURS, {})
        if "start" in ours:
            return None
        unknown = sorted(set(ours) - {"cluster", "ids", "begin"})
        if unknown:
            raise BadCheckpoint(
                f"the checkpoint has {', '.join(unknown)}, which this version does not know",
                hint="use the version of ottla that wrote it, or a newer one",
            )
        return StreamOffsets(
            from_dict({topic: offsets for topic, offsets in checkpoint.items() if topic != OURS}),
            str(ours.get("cluster", "")),
            known_ids({topic: uuid_from_text(text) for topic, text in ours.get("ids", {}).items()}),
            from_dict(ours.get("begin", {})),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"the checkpoint has {str(checkpoint)[:200]}, which are no offsets: {error}") from None


def known_ids(topic_ids: Mapping[str, UUID]) -> dict[str, UUID]:
    """Without those that the cluster does not have (all zeros)."""
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id != ZERO_UUID}


def places_of(offsets: StreamOffsets, topic: str) -> list[TopicPartition]:
    """The topic's partitions that are in the offsets."""
    return [place for place in offsets.next_offsets if place.topic == topic]


@dataclass(frozen=True, slots=True)
class LogsNow:
    """The subscribed partitions of the cluster, up to where they can be read, and where their logs end.

    An open transaction keeps readers of committed records from the end of a log that is no shorter for it.
    """

    cluster_id: str
    topic_ids: Mapping[str, UUID]
    ends: Offsets
    log_ends: Offsets

    def reaching(self, first: Offsets) -> LogsNow:
        """As if no log ended before these offsets."""
        return replace(self, ends=_reaching(self.ends, first), log_ends=_reaching(self.log_ends, first))

    def offsets(self, next_offsets: Offsets, begin: Offsets) -> StreamOffsets:
        topics = {place.topic for place in next_offsets}
        ids = {topic: topic_id for topic, topic_id in known_ids(self.topic_ids).items() if topic in topics}
        return StreamOffsets(next_offsets, self.cluster_id, ids, begin)


def _reaching(ends: Offsets, first: Offsets) -> Offsets:
    return {place: max(end, first.get(place, end)) for place, end in ends.items()}


@dataclass(slots=True)
class Beginnings:
    """Where reading of each partition continues.

    `first`: the next offset to read.  `new`: partitions that start at their earliest offset, which the caller must look
    up. `added`: those of them whose topic is read already, so that their first record should still be there.  `gone`:
    partitions that were read, and seem to be deleted, with their topics' ids as they were.  `cut`: those whose logs
    seem to end before what was read, with its end.  `losses`: what was lost, as far as it is known.
    """

    first: Offsets = field(default_factory=dict)
    new: set[TopicPartition] = field(default_factory=set)
    added: set[TopicPartition] = field(default_factory=set)
    gone: dict[TopicPartition, UUID] = field(default_factory=dict)
    cut: Offsets = field(default_factory=dict)
    losses: list[LostRange] = field(default_factory=list)


def beginnings(known: StreamOffsets, logs: LogsNow, unsubscribed: set[TopicPartition]) -> Beginnings:
    """`unsubscribed` partitions are no longer read by the user's choice: that is no loss."""
    now = logs.offsets(logs.ends, {})
    found = Beginnings()
    gone = sorted(set(known.next_offsets) - set(logs.ends) - unsubscribed)
    found.gone |= {place: known.topic_ids.get(place.topic, ZERO_UUID) for place in gone}
    found.losses += [
        _loss(known, place, known.next_offsets[place], UNKNOWN_END, "read by the query, and deleted since")
        for place in gone
    ]
    known_topics = {place.topic for place in known.next_offsets}
    recreated: set[str] = set()
    for place, end in sorted(logs.log_ends.items()):
        if not known.is_same_topic(now, place.topic):
            found.new.add(place)
            recreated.add(place.topic)
        elif place not in known.next_offsets:
            found.new.add(place)
            if place.topic in known_topics:
                found.added.add(place)
        elif known.next_offsets[place] > end:
            read = known.next_offsets[place]
            found.cut[place] = read
            reason = f"it was read up to offset {read}, and now it ends at {end}"
            found.losses.append(_loss(known, place, end, read, reason))
            if known.knows_id(place.topic):
                # The same topic, cut off: what it has below was read.
                found.first[place] = end
            else:
                found.new.add(place)
        else:
            found.first[place] = known.next_offsets[place]
    for place, read in sorted(known.next_offsets.items()):
        if place.topic in recreated and place not in found.gone:
            found.losses.append(_loss(known, place, read, UNKNOWN_END, _recreated(place.topic, known, now)))
            if known.knows_id(place.topic):
                found.gone[place] = known.topic_ids[place.topic]
    return found


def _loss(known: StreamOffsets, place: TopicPartition, first: int, end: int, reason: str) -> LostRange:
    topic_id = known.topic_ids.get(place.topic, ZERO_UUID)
    return LostRange(place.topic, topic_id, place.partition, first, end, reason)


def _recreated(topic: str, known: StreamOffsets, now: StreamOffsets) -> str:
    before, after = known.topic_ids.get(topic), now.topic_ids.get(topic)
    if before is None or after is None:
        return f"the topic {topic} was read from the cluster {known.cluster_id}, and this one is {now.cluster_id}"
    return (
        f"the topic {topic} was deleted and recreated, or is another cluster's: its id was {uuid_to_text(before)}, "
        f"and now it is {uuid_to_text(after)}"
    )


def first_offsets(known: StreamOffsets | None, end: StreamOffsets) -> tuple[Offsets, set[TopicPartition]]:
    """Where a planned batch begins in each partition of `end`, and the partitions for which neither says it.

    Only checkpoints of earlier versions do not say it, for new and for recreated partitions.
    """
    first: Offsets = {}
    unknown: set[TopicPartition] = set()
    for place, limit in end.next_offsets.items():
        goes_on = known is not None and place in known.next_offsets and known.is_same_topic(end, place.topic)
        if known is not None and goes_on and known.next_offsets[place] <= limit:
            first[place] = known.next_offsets[place]
        elif place in end.begin:
            first[place] = end.begin[place]
        elif known is not None and goes_on and known.knows_id(place.topic):
            first[place] = limit  # the log was cut off: there is nothing to read
        else:
            unknown.add(place)
    return first, unknown
