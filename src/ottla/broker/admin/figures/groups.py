"""Groups of consumers: their states and members, committed offsets and lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.observe.metrics import PAUSE, SAMPLES_MAX, Family, Pause, counter, gauge
from ottla.replication.replica import Role

_PLACE = ("consumergroup", "topic", "partition")
_PAUSE_AFTER = 500


def group_figures(groups: GroupCoordinator, partitions: PartitionTable) -> Iterator[Family | Pause]:
    """Of the groups that this broker coordinates."""
    states: Counter[tuple[str, ...]] = Counter()
    members: dict[tuple[str, ...], int] = {}
    committed: dict[tuple[str, ...], int] = {}
    lags: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups.figures()):
        if number % _PAUSE_AFTER == _PAUSE_AFTER - 1:
            yield PAUSE
        states[group.kind, group.state_name] += 1
        if group.members_count:
            members[(group.group_id,)] = group.members_count
        for topic, index, offset in group.committed():
            if len(committed) > SAMPLES_MAX:
                # One above the limit: the registry reports that some were left out.
                break
            place = (group.group_id, topic, str(index))
            committed[place] = offset
            partition = partitions.find(topic, index)
            if partition is not None and partition.role is Role.LEADER:
                # A group that was reset beyond the end has no lag.
                lags[place] = max(partition.high_watermark - offset, 0)
    memories = {("members",): groups.member_bytes, ("offsets",): groups.offset_bytes}
    held = {kind: shared.held_bytes for kind, shared in memories.items()}
    limits = {kind: shared.limit_bytes for kind, shared in memories.items()}
    refused = {kind: shared.refused_count for kind, shared in memories.items()}
    count = sum(states.values())
    yield gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups of this coordinator.", count)
    yield gauge("ottla_groups", "Groups of this coordinator, by kind and state.", states, ("kind", "state"))
    yield gauge("ottla_group_memory_bytes", "Memory of all members and of all committed offsets.", held, ("kind",))
    yield gauge("ottla_group_memory_limit_bytes", "The most that they may take.", limits, ("kind",))
    about = "Joins and commits refused since the client, the group or all groups hold too much of that memory."
    yield counter("ottla_group_memory_refused_total", about, refused, ("kind",))
    yield gauge("kafka_consumergroup_members", "Members of each group that has any.", members, ("consumergroup",))
    yield gauge("kafka_consumergroup_current_offset", "The committed offset.", committed, _PLACE)
    yield gauge(
        "kafka_consumergroup_lag",
        "Records from the committed offset to the high watermark, of partitions that this broker leads; "
        "for others subtract the committed offset from their leader's kafka_log_log_logendoffset.",
        lags,
        _PLACE,
    )
