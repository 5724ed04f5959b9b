"""How far a stream is behind its topics, in the progress that Spark reports of a query.  Pure.

Spark takes no metrics of a source in Python (`metrics` of its progress is empty), and passes its logs' ends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from ottla.spark.options.offset_spec import Offsets, from_dict
from ottla.spark.source.stream_plan import OURS, from_checkpoint
from ottla.spark.spark_features import INSTALLED, SparkFeature, SparkFeatures


class ReportedSource(Protocol):
    """A source in a progress report; offsets are JSON."""

    @property
    def endOffset(self) -> str | None: ...

    @property
    def latestOffset(self) -> str | None: ...


def behind(sources: Iterable[ReportedSource], features: SparkFeatures = INSTALLED) -> dict[str, dict[int, int]]:
    """For each topic and partition, the offsets from the end of the last batch to the end of the log.

    The logs' ends are those of the last plan, and with `availableNow` where the query ends.  Other sources of the query
    are left out, and so are partitions that no batch has planned yet: where one begins is looked up by its first plan.
    Raises `NotInThisSpark`.
    """
    features.require(
        SparkFeature.READ_LIMITS,
        "the distance of a stream from its logs' ends",
        "give the stream a groupId: `ottla group describe` shows its lag",
    )
    found: dict[str, dict[int, int]] = {}
    for source in sources:
        done, ends = _read(source.endOffset), _read(source.latestOffset)
        # The official connector's offsets are the same without this name.
        if done is None or OURS not in done or ends is None:
            continue
        read = _next_offsets(done)
        for place, end in sorted(from_dict(ends).items()):
            if place in read:
                found.setdefault(place.topic, {})[place.partition] = max(0, end - read[place])
    return found


def _next_offsets(checkpoint: dict[str, Any]) -> Offsets:
    offsets = from_checkpoint(checkpoint)
    return {} if offsets is None else offsets.next_offsets


def _read(offsets: str | None) -> dict[str, Any] | None:
    """None for what is not of this source."""
    try:
        read = json.loads(offsets or "null")
    except ValueError:
        return None
    if not isinstance(read, dict):
        return None
    plain = {topic: numbers for topic, numbers in read.items() if topic != OURS}
    is_ours = all(isinstance(numbers, dict) and all(map(str.isdigit, numbers)) for numbers in plain.values())
    return read if is_ours else None
