"""Committed offsets of groups, as offsets of the target: a consumer that moves there continues where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.client.groups.group_types import INACTIVE_STATES, CommittedOffset
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.mirror.offset_translation import OffsetTranslation
from ottla.mirror.options import Names
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import is_own_group


def is_copied_group(group_id: str, names: Names) -> bool:
    """Groups of the target's own parts are never copied, even when a name matches."""
    return group_id in names and not is_own_group(group_id)


def translated(
    committed: Mapping[TopicPartition, CommittedOffset],
    maps: Mapping[TopicPartition, OffsetTranslation],
    on_target: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """What to commit on the target: of partitions that are copied, and only forward.  Pure.

    A group that has read more than is copied gets the copy's end, and more with the next time.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    for partition, each in committed.items():
        offsets = maps.get(partition)
        if offsets is None:
            continue
        offset = offsets.translate(each.offset)
        there = on_target.get(partition)
        if there is None or offset > there.offset:
            found[partition] = CommittedOffset(offset, metadata=each.metadata)
    return found


class GroupCopy:
    """`note` is called once for each group that is not copied."""

    def __init__(self, source: Cluster, target: Cluster, names: Names, note: Callable[[str], None]) -> None:
        self._source = GroupAdmin(source)
        self._target = GroupAdmin(target)
        self._names = names
        self._note = note
        self._noted: set[str] = set()

    def sync(self, maps: Mapping[TopicPartition, OffsetTranslation]) -> int:
        """Bring the groups of the target up to date; the count of offsets that were committed.  Raises ClientError."""
        if not maps:
            return 0
        states = {each.group_id: each.state for each in self._target.list_groups()}
        committed_count = 0
        for listed in self._source.list_groups():
            group_id = listed.group_id
            if is_copied_group(group_id, self._names):
                committed_count += self._sync_group(group_id, states.get(group_id), maps)
        return committed_count

    def _sync_group(self, group_id: str, state: str | None, maps: Mapping[TopicPartition, OffsetTranslation]) -> int:
        """`state` of the group on the target; None: there is none, empty: its broker is too old to say."""
        try:
            committed = self._source.committed(group_id)
        except UnknownGroup:
            return 0
        if not committed.keys() & maps.keys():
            return 0
        if state == "":
            state = self._target.describe(group_id).state
        if state is not None and state not in INACTIVE_STATES:
            self._note_once(group_id, "it has members on the target, and only they commit there")
            return 0
        there = {} if state is None else self._target.committed(group_id)
        wanted = translated(committed, maps, there)
        if wanted:
            try:
                self._target.commit(group_id, wanted)
            except ClientError as error:
                if error.is_retriable:
                    raise
                self._note_once(group_id, str(error))
                return 0
        self._noted.discard(group_id)
        return len(wanted)

    def _note_once(self, group_id: str, problem: str) -> None:
        if group_id not in self._noted:
            self._noted.add(group_id)
            self._note(f"group {group_id}: {problem}")
