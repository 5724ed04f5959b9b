"""What a stream's checkpoint holds of its topics.

    {"clicks": {"0": 70, "1": 30},
     "$ottla": {"cluster": "u8…", "ids": {"clicks": "bX…"}, "begin": {"clicks": {"1": 0}}}}

The next offset of each partition, as the official connector writes it, and below a name that no topic can have: the
cluster, the topics' ids, and `begin`, the first offset of each partition that the offsets before do not have.  So a
batch can be planned again, the first one too, without a question whose answer has changed.  Spark asks for the initial
offset several times, and once more for each replay of the first batch: it is `UNRESOLVED`, and the end of the first
batch says where that began.  Checkpoints of earlier versions have the offsets alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

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
    """`topic_ids` has no topic whose id is not known; `cluster_id` is empty where it is not."""

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
