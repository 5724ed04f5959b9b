"""Committed offsets of groups without members, of classic members, and of no member."""

from __future__ import annotations

from typing import Final

from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.probes.scripts.classic_groups import SUBSCRIPTION
from tests.interop.probes.talk import Talk

TOPIC: Final = "probe-groups"


def _commit(
    group: str,
    offset: int = 3,
    *,
    generation: int = -1,
    member: str = "",
    metadata: str | None = "",
    partition: int = 0,
    topic: str = TOPIC,
    instance: str | None = None,
) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition, offset, -1, metadata)
    return OffsetCommitRequest(group, generation, member, instance, topics=[OffsetCommitRequestTopic(topic, [part])])


def _fetch(group: str, version: int, partitions: list[int] | None, topic: str = TOPIC) -> OffsetFetchRequest:
    topics = None if partitions is None else [OffsetFetchRequestTopic(topic, partitions)]
    if version >= 8:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    return OffsetFetchRequest(group, topics)


def probe_committed_offsets(talk: Talk) -> None:
    group = "probe-commits"
    talk.create_topic(TOPIC, 3)
    talk.settle_coordinator(group)
    for version in range(2, 9):
        talk.ask(f"OffsetCommit v{version}", version, _commit(group, 10 + version, metadata=f"v{version}"))
    cases = {
        "null metadata": _commit(group, 50, metadata=None, partition=1),
        "long metadata": _commit(group, 51, metadata="x" * 5_000, partition=2),
        "a negative offset": _commit(group, -7, partition=2),
        "an unknown topic": _commit(group, topic="probe-nowhere"),
        "an unknown partition": _commit(group, partition=9),
        "no group": _commit(""),
        "a member of a group without members": _commit(group, generation=1, member="stranger"),
        "a generation without a member": _commit(group, generation=4),
        "another group by v9": _commit("probe-commits-9"),
    }
    for label, request in cases.items():
        talk.ask(f"OffsetCommit of {label}", 9 if "v9" in label else 8, request)
    for version in range(1, 10):
        talk.ask(f"OffsetFetch v{version}", version, _fetch(group, version, [0, 1, 2, 9]))
    talk.ask("OffsetFetch of all", 9, _fetch(group, 9, None))
    talk.ask("OffsetFetch v7 of all", 7, _fetch(group, 7, None))
    talk.ask("OffsetFetch of an unknown group", 9, _fetch("probe-no-group", 9, [0]))
    talk.ask("OffsetFetch of all of an unknown group", 9, _fetch("probe-no-group", 9, None))
    talk.ask("OffsetFetch of an unknown topic", 9, _fetch(group, 9, [0], "probe-nowhere"))
    two = [OffsetFetchRequestGroup(name, topics=None) for name in (group, "probe-no-group")]
    talk.ask("OffsetFetch of two groups", 9, OffsetFetchRequest(groups=two))
    for label, name, topic, partition in [
        ("a commit", group, TOPIC, 1),
        ("it again", group, TOPIC, 1),
        ("an unknown topic", group, "probe-nowhere", 0),
        ("an unknown partition", group, TOPIC, 9),
        ("an unknown group", "probe-no-group", TOPIC, 0),
    ]:
        part = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
        talk.ask(f"OffsetDelete of {label}", 0, OffsetDeleteRequest(name, [part]))
    talk.ask("OffsetFetch after OffsetDelete", 9, _fetch(group, 9, None))
    talk.ask("DeleteGroups of a group with commits", 2, DeleteGroupsRequest([group]))
    talk.ask("OffsetFetch after DeleteGroups", 9, _fetch(group, 9, None))


def probe_commits_of_members(talk: Talk) -> None:
    group = "probe-member-commits"
    talk.create_topic(TOPIC, 3)
    talk.settle_coordinator(group)
    protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
    join = JoinGroupRequest(group, 10_000, 20_000, "", None, "consumer", protocols)
    joined = talk.ask_for("the member joins", 3, join, JoinGroupResponse)
    member, generation = joined.member_id, joined.generation_id
    talk.ask("commit before sync", 8, _commit(group, generation=generation, member=member))
    given = [SyncGroupRequestAssignment(member, b"all")]
    talk.ask("the member syncs", 3, SyncGroupRequest(group, generation, member, assignments=given))
    talk.ask("commit", 8, _commit(group, 5, generation=generation, member=member))
    talk.ask("commit of an old generation", 8, _commit(group, 6, generation=generation - 1, member=member))
    talk.ask("commit of a generation to come", 8, _commit(group, 6, generation=generation + 1, member=member))
    talk.ask("commit of a stranger", 8, _commit(group, 6, generation=generation, member="stranger"))
    talk.ask("commit without a member id while there are members", 8, _commit(group, 6))
    talk.ask("commit v9", 9, _commit(group, 7, generation=generation, member=member))
    talk.ask("commit v9 of an old generation", 9, _commit(group, 8, generation=generation - 1, member=member))
    part = OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])
    talk.ask("OffsetDelete of what is subscribed", 0, OffsetDeleteRequest(group, [part]))
    talk.ask("OffsetFetch of the member's group", 9, _fetch(group, 9, None))
