"""One group as metrics show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.groups.committed_offsets import CommittedOffsets
from ottla.groups.group import GroupKind
from ottla.groups.offset_records import decode_offset_value


class GroupFigures(NamedTuple):
    """`offsets` is the group's own object: it is read, not kept."""

    group_id: str
    kind: GroupKind
    state_name: str
    members_count: int
    offsets: CommittedOffsets

    def committed(self) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, committed offset)."""
        for topic, values in self.offsets.by_topic.items():
            for partition, value in values.items():
                yield topic, partition, decode_offset_value(value).offset
