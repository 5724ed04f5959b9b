"""Classic groups: rebalances of two members, refused requests, static members, requests of administrators."""

from __future__ import annotations

from typing import Final

from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest
from ottla.protocol.schemas.heartbeat import HeartbeatRequest
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.schemas.list_groups import ListGroupsRequest
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.probes.talk import Talk

# A subscription to one topic, as clients write it; brokers parse it only for OffsetDelete.
SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\14probe-groups\xff\xff\xff\xff\0\0\0\0"
NOT_LOADED: Final = 14


def _join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = SUBSCRIPTION,
    session_ms: int = 10_000,
    kind: str = "consumer",
) -> JoinGroupRequest:
    offered = [JoinGroupRequestProtocol(name, metadata) for name in protocols]
    return JoinGroupRequest(group, session_ms, 20_000, member, instance, kind, offered)


def _sync(group: str, generation: int, member: str, assignments: dict[str, bytes] | None = None) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(name, part) for name, part in (assignments or {}).items()]
    return SyncGroupRequest(group, generation, member, None, "consumer", "range", given)


def probe_coordinator(talk: Talk) -> None:
    talk.settle_coordinator("probe-coordinator")
    for version in range(4):
        talk.ask(f"FindCoordinator v{version}", version, FindCoordinatorRequest("probe-coordinator"))
    two = FindCoordinatorRequest(coordinator_keys=["probe-coordinator", "probe-other"])
    talk.ask("FindCoordinator v4", 4, two)
    talk.ask("FindCoordinator of no group", 4, FindCoordinatorRequest(coordinator_keys=[""]))
    talk.ask("FindCoordinator of an unknown kind", 4, FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]))


def probe_rounds(talk: Talk) -> None:
    """One member, then a second one, then both leave; each waits on its own connection."""
    group = "probe-rounds"
    talk.settle_coordinator(group)
    first = talk.ask_for("join: an id is required", 9, _join(group), JoinGroupResponse, on="a").member_id
    joined = talk.ask_for("join: first member", 9, _join(group, first), JoinGroupResponse, on="a")
    generation = joined.generation_id
    talk.ask("heartbeat before sync", 4, HeartbeatRequest(group, generation, first))
    talk.ask("sync: leader", 5, _sync(group, generation, first, {first: b"first's part"}), on="a")
    talk.ask("heartbeat", 4, HeartbeatRequest(group, generation, first))
    talk.ask("heartbeat of an old generation", 4, HeartbeatRequest(group, generation - 1, first))
    talk.ask("heartbeat of a stranger", 4, HeartbeatRequest(group, generation, "stranger"))
    talk.ask("sync again", 5, _sync(group, generation, first))
    talk.ask("sync of an old generation", 5, _sync(group, generation - 1, first))
    talk.ask("sync of a stranger", 5, _sync(group, generation, "stranger"))
    talk.ask("describe: stable", 5, DescribeGroupsRequest([group], True))
    second = talk.ask_for("join: second id", 9, _join(group), JoinGroupResponse, on="b").member_id
    talk.send(9, _join(group, second), on="b")
    talk.wait_until(4, HeartbeatRequest(group, generation, first), lambda answer: "error_code=27" in repr(answer))
    talk.ask("heartbeat while it rebalances", 4, HeartbeatRequest(group, generation, first))
    talk.ask("sync while it rebalances", 5, _sync(group, generation, first))
    talk.ask("describe: preparing", 5, DescribeGroupsRequest([group]))
    talk.send(9, _join(group, first), on="a")
    both = talk.receive("join: leader of two", on="a")
    talk.receive("join: follower of two", on="b")
    assert isinstance(both, JoinGroupResponse)
    talk.ask("describe: completing", 5, DescribeGroupsRequest([group]))
    talk.send(5, _sync(group, both.generation_id, second), on="b")
    talk.ask("sync: leader of two", 5, _sync(group, both.generation_id, first, {first: b"1", second: b"2"}), on="a")
    talk.receive("sync: follower of two", on="b")
    talk.ask("join: unchanged follower", 9, _join(group, second), on="b")
    talk.ask("list", 5, ListGroupsRequest())
    talk.ask("list of states", 4, ListGroupsRequest(["Stable"]))
    talk.ask("list of unknown states", 4, ListGroupsRequest(["Bogus"]))
    talk.ask("list of types", 5, ListGroupsRequest([], ["classic"]))
    talk.ask("delete a group that is alive", 2, DeleteGroupsRequest([group]))
    leaving = LeaveGroupRequest(group, members=[MemberIdentity(second), MemberIdentity("stranger")])
    talk.ask("leave: second and a stranger", 5, leaving)
    talk.wait_until(
        4, HeartbeatRequest(group, both.generation_id, first), lambda answer: "error_code=27" in repr(answer)
    )
    talk.ask("heartbeat after the other left", 4, HeartbeatRequest(group, both.generation_id, first))
    talk.ask("leave: v1", 1, LeaveGroupRequest(group, first))
    talk.ask("describe: empty", 5, DescribeGroupsRequest([group]))
    talk.ask("delete", 2, DeleteGroupsRequest([group, "probe-no-group"]))
    talk.ask("describe: deleted", 5, DescribeGroupsRequest([group]))
    talk.ask("describe v6: deleted", 6, DescribeGroupsRequest([group]))


def probe_refusals(talk: Talk) -> None:
    group = "probe-refusals"
    talk.settle_coordinator(group)
    joined = talk.ask_for("a member by v3", 3, _join(group), JoinGroupResponse)
    member, generation = joined.member_id, joined.generation_id
    talk.ask("its sync by v3", 3, _sync(group, generation, member, {member: b""}))
    cases = {
        "no group": _join(""),
        "too short a session": _join(group, session_ms=1),
        "too long a session": _join(group, session_ms=10_000_000),
        "no protocol": _join(group, protocols=()),
        "no common protocol": _join(group, protocols=("other",)),
        "another kind": _join(group, kind="connect"),
        "no kind": _join(group, kind=""),
        "an unknown member": _join(group, "stranger"),
    }
    for label, request in cases.items():
        talk.ask(f"join refused: {label}", 3, request)
    talk.ask("heartbeat of no group", 4, HeartbeatRequest("", 0, "x"))
    talk.ask("heartbeat of an unknown group", 4, HeartbeatRequest("probe-no-group", 0, "x"))
    talk.ask("sync of an unknown group", 5, _sync("probe-no-group", 1, "x"))
    wrong = SyncGroupRequest(group, generation, member, None, "connect", "range", [])
    talk.ask("sync of another kind", 5, wrong)
    talk.ask("sync of another protocol", 5, SyncGroupRequest(group, generation, member, None, "consumer", "other", []))
    talk.ask("leave of an unknown group", 5, LeaveGroupRequest("probe-no-group", members=[MemberIdentity("x")]))
    talk.ask("leave v1 of an unknown member", 1, LeaveGroupRequest(group, "stranger"))
    talk.ask("leave of no member", 5, LeaveGroupRequest(group))
    talk.ask("describe of no group", 5, DescribeGroupsRequest(["", "probe-no-group"]))
    talk.ask("delete of no group", 2, DeleteGroupsRequest([""]))


def probe_static_members(talk: Talk) -> None:
    group = "probe-static"
    talk.settle_coordinator(group)
    old = talk.ask_for("static: join", 9, _join(group, instance="i-1"), JoinGroupResponse)
    assignments = {old.member_id: b"all"}
    talk.ask("static: sync", 5, _sync(group, old.generation_id, old.member_id, assignments))
    new = talk.ask_for("static: comes back", 9, _join(group, instance="i-1"), JoinGroupResponse)
    talk.ask("static: sync of the new one", 5, _sync(group, new.generation_id, new.member_id))
    talk.ask("static: heartbeat of the new one", 4, HeartbeatRequest(group, new.generation_id, new.member_id, "i-1"))
    talk.ask("static: heartbeat of the old one", 4, HeartbeatRequest(group, old.generation_id, old.member_id, "i-1"))
    talk.ask("static: join of the old one", 9, _join(group, old.member_id, instance="i-1"))
    fenced = LeaveGroupRequest(group, members=[MemberIdentity(old.member_id, "i-1")])
    talk.ask("static: leave of the old one", 5, fenced)
    talk.ask("static: comes back by v5", 5, _join(group, instance="i-1"))
    talk.ask("static: describe", 5, DescribeGroupsRequest([group]))
    by_instance = LeaveGroupRequest(group, members=[MemberIdentity("", "i-1"), MemberIdentity("", "i-2")])
    talk.ask("static: leave by instance", 5, by_instance)
    talk.ask("static: describe when gone", 5, DescribeGroupsRequest([group]))
