"""KIP-848: two members share three partitions, hand one over, leave; refused requests; descriptions."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest
from ottla.protocol.schemas.heartbeat import HeartbeatRequest
from ottla.protocol.schemas.list_groups import ListGroupsRequest
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tests.interop.probes.talk import Talk

TOPIC: Final = "probe-848"
FIRST, SECOND = "first-member", "second-member"


class _Group:
    def __init__(self, talk: Talk, name: str, topic_id: UUID) -> None:
        self._talk, self.name, self._topic_id = talk, name, topic_id

    def beat(
        self,
        label: str,
        member: str,
        epoch: int,
        *,
        names: list[str] | None = None,
        owned: list[int] | None = None,
        timeout_ms: int = -1,
        instance: str | None = None,
        assignor: str | None = None,
        regex: str | None = None,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        parts = None if owned is None else [OwnedTopicPartitions(self._topic_id, owned)] if owned else []
        request = ConsumerGroupHeartbeatRequest(
            self.name, member, epoch, instance, None, timeout_ms, names, regex, assignor, parts
        )
        return self._talk.ask_for(label, version, request, ConsumerGroupHeartbeatResponse)

    def join(self, label: str, member: str, **more: str) -> ConsumerGroupHeartbeatResponse:
        return self.beat(label, member, 0, names=[TOPIC], owned=[], timeout_ms=30_000, **more)  # type: ignore[arg-type]


def _group(talk: Talk, name: str) -> _Group:
    talk.create_topic(TOPIC, 3)
    talk.settle_coordinator(name)
    return _Group(talk, name, talk.settle_topic(TOPIC).topics[0].topic_id)


def _tell(talk: Talk, label: str, group: str) -> None:
    talk.ask(f"ConsumerGroupDescribe {label}", 1, ConsumerGroupDescribeRequest([group]))


def probe_handover(talk: Talk) -> None:
    """The epochs of the protocol, heartbeat by heartbeat."""
    group = _group(talk, "probe-handover")
    first = group.join("848: first joins", FIRST)
    group.beat("848: first, nothing new", FIRST, first.member_epoch)
    group.beat("848: first owns all", FIRST, first.member_epoch, owned=[0, 1, 2])
    _tell(talk, "of one member", group.name)
    second = group.join("848: second joins", SECOND)
    group.beat("848: second waits", SECOND, second.member_epoch)
    reduced = group.beat("848: first must give up", FIRST, first.member_epoch)
    group.beat("848: first has not yet", FIRST, first.member_epoch)
    _tell(talk, "while one gives up", group.name)
    assert reduced.assignment is not None
    kept = [index for part in reduced.assignment.topic_partitions for index in part.partitions]
    gave = group.beat("848: first gave up", FIRST, first.member_epoch, owned=kept)
    got = group.beat("848: second gets", SECOND, second.member_epoch)
    group.beat("848: first continues", FIRST, gave.member_epoch)
    group.beat("848: full heartbeat", FIRST, gave.member_epoch, names=[TOPIC], owned=kept, timeout_ms=30_000)
    _tell(talk, "of two members", group.name)
    talk.ask("ListGroups v5 of a consumer group", 5, ListGroupsRequest([], ["consumer"]))
    talk.ask("DescribeGroups v5 of a consumer group", 5, DescribeGroupsRequest([group.name]))
    talk.ask("DescribeGroups v6 of a consumer group", 6, DescribeGroupsRequest([group.name]))
    talk.ask("classic Heartbeat in a consumer group", 4, HeartbeatRequest(group.name, 1, FIRST))
    talk.ask("DeleteGroups of a consumer group that is alive", 2, DeleteGroupsRequest([group.name]))
    group.beat("848: first leaves", FIRST, -1)
    group.beat("848: first is gone", FIRST, gave.member_epoch)
    last = group.beat("848: second takes over", SECOND, got.member_epoch)
    group.beat("848: second owns all", SECOND, last.member_epoch, owned=[0, 1, 2])
    group.beat("848: second leaves", SECOND, -1)
    _tell(talk, "of an empty group", group.name)
    talk.ask("DeleteGroups of an empty consumer group", 2, DeleteGroupsRequest([group.name]))
    _tell(talk, "of a deleted group", group.name)


def probe_848_refusals(talk: Talk) -> None:
    group = _group(talk, "probe-848-refusals")
    group.beat("848 refused: no time-out", FIRST, 0, names=[TOPIC], owned=[])
    group.beat("848 refused: no subscription", FIRST, 0, owned=[], timeout_ms=30_000)
    group.beat("848 refused: owns at the join", FIRST, 0, names=[TOPIC], owned=[1], timeout_ms=30_000)
    group.beat("848 refused: no list of what it owns", FIRST, 0, names=[TOPIC], timeout_ms=30_000)
    group.beat("848 refused: no member id", "", 0, names=[TOPIC], owned=[], timeout_ms=30_000)
    group.beat("848 refused: an unknown group", FIRST, 3)
    group.join("848 refused: unknown assignor", FIRST, assignor="unknown")
    group.beat("848 refused: epoch -3", FIRST, -3)
    group.beat("848 refused: static leave without an instance", FIRST, -2)
    group.beat("848: an empty subscription", FIRST, 0, names=[], owned=[], timeout_ms=30_000)
    joined = group.join("848: a member", SECOND)
    epoch = joined.member_epoch
    group.beat("848 refused: an epoch to come", SECOND, epoch + 50)
    group.beat("848 refused: an unknown member", "stranger", epoch)
    group.beat("848 refused: an unknown member leaves", "stranger", -1)
    group.beat("848 refused: a bad regex", SECOND, epoch, regex="[bad")
    group.beat("848 refused: a look-ahead", SECOND, epoch, regex="a(?=b)")
    group.beat("848 refused: owns what it was not given", SECOND, epoch, owned=[7])
    server_made = group.beat(
        "848 v0: the broker makes an id", "", 0, names=[TOPIC], owned=[], timeout_ms=9_000, version=0
    )
    group.beat("848 v0: it leaves", server_made.member_id or "", -1, version=0)
    nameless = _Group(talk, "", UUID(int=1))
    nameless.join("848 refused: no group", FIRST)
    _tell(talk, "of an unknown group", "probe-no-group")


def probe_848_subscriptions(talk: Talk) -> None:
    group = _group(talk, "probe-848-regex")
    talk.create_topic("probe-848-more", 1)
    ranged = _Group(talk, "probe-848-range", UUID(int=1))
    ranged.join("848: range assignor, first", FIRST, assignor="range")
    ranged.join("848: range assignor, second", SECOND, assignor="range")
    _tell(talk, "of the range assignor", ranged.name)
    unknown = _Group(talk, "probe-848-unknown", UUID(int=1))
    unknown.beat("848: a topic that is not there", FIRST, 0, names=["probe-848-later"], owned=[], timeout_ms=30_000)
    _tell(talk, "of a topic that is not there", unknown.name)
    group.beat("848: static member joins", FIRST, 0, names=[TOPIC], owned=[], timeout_ms=30_000, instance="i-1")
    group.beat("848: its instance is taken", SECOND, 0, names=[TOPIC], owned=[], timeout_ms=30_000, instance="i-1")
    group.beat("848: static member goes for now", FIRST, -2, instance="i-1")
    group.beat("848: its successor", SECOND, 0, names=[TOPIC], owned=[], timeout_ms=30_000, instance="i-1")
    group.beat("848: the predecessor beats", FIRST, 1, instance="i-1")
    _tell(talk, "of a static member", group.name)


def probe_848_commits(talk: Talk) -> None:
    group = _group(talk, "probe-848-commits")
    epoch = group.join("848 commits: join", FIRST).member_epoch

    def commit(label: str, offset: int, member: str, member_epoch: int, version: int = 9) -> None:
        part = OffsetCommitRequestPartition(0, offset)
        topics = [OffsetCommitRequestTopic(TOPIC, [part])]
        talk.ask(f"848 commit: {label}", version, OffsetCommitRequest(group.name, member_epoch, member, topics=topics))

    commit("of the member", 5, FIRST, epoch)
    commit("of an old epoch", 6, FIRST, epoch - 1)
    commit("of an epoch to come", 6, FIRST, epoch + 1)
    commit("of an old epoch by v8", 6, FIRST, epoch - 1, 8)
    commit("of a stranger", 6, "stranger", epoch)
    commit("without a member id", 6, "", -1)
    for label, member, at in [
        ("of the member", FIRST, epoch),
        ("of an old epoch", FIRST, epoch - 1),
        ("of a stranger", "stranger", epoch),
        ("without a member id", None, -1),
    ]:
        topics = [OffsetFetchRequestTopic(TOPIC, [0])]
        asked = OffsetFetchRequestGroup(group.name, member, at, topics)
        talk.ask(f"848 offset fetch: {label}", 9, OffsetFetchRequest(groups=[asked], require_stable=True))
