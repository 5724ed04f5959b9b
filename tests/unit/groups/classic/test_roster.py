from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.member import Member, Roster
from ottla.groups.commands import JoinProtocol
from ottla.groups.deadlines import Deadline
from ottla.groups.group_metadata import StoredMember
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, SharedBytes
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator

if TYPE_CHECKING:
    from ottla.groups.replies import JoinReply

GROUP = ClassicGroup("team", Coordinator().shard)


def member(name: str, *protocols: str, instance_id: str | None = None) -> Member:
    stored = StoredMember(name, instance_id, "c", "/h", 1_000, 500, b"", b"")
    return Member(stored, [JoinProtocol(protocol, b"") for protocol in protocols], Deadline(GROUP, "session", name))


def roster_of(*members: Member) -> Roster:
    roster = Roster(SharedBytes(MEMBER_BYTES_MAX))
    for one in members:
        roster.add(one)
        roster.assert_sound()
    return roster


def ignore(reply: JoinReply) -> None:
    pass


def test_protocol_with_the_most_votes_among_those_that_all_know_is_chosen() -> None:
    roster = roster_of(member("a", "x", "both", "also"), member("b", "also", "both"), member("c", "both", "also"))
    assert roster.choose_protocol() == "both"


def test_of_equal_votes_the_first_wins() -> None:
    assert roster_of(member("a", "x", "y"), member("b", "y", "x")).choose_protocol() == "x"


def test_choice_can_be_computed_as_if_a_member_had_other_protocols() -> None:
    one = member("a", "x", "y")
    roster = roster_of(one, member("b", "y", "x"))
    assert roster.choose_protocol(one, [JoinProtocol("y", b"")]) == "y"
    assert roster.choose_protocol() == "x"


def test_protocol_is_supported_when_every_member_knows_it() -> None:
    roster = roster_of(member("a", "x", "y"), member("b", "y"))
    assert roster.supports([JoinProtocol("z", b""), JoinProtocol("y", b"")])
    assert not roster.supports([JoinProtocol("x", b"")])
    assert not roster.supports([])
    roster.remove("b")
    assert roster.supports([JoinProtocol("x", b"")])


def test_protocol_that_a_member_names_twice_counts_once() -> None:
    roster = roster_of(member("a", "x", "x"), member("b", "y"))
    assert not roster.supports([JoinProtocol("x", b"")])


def test_next_in_line_leads_when_the_leader_goes() -> None:
    roster = roster_of(member("a", "x"), member("b", "x"), member("c", "x"))
    leaders = [roster.leader_id]
    for name in "acb":
        roster.remove(name)
        leaders.append(roster.leader_id)
    assert leaders == ["a", "b", "b", None]
    roster.assert_sound()


def test_first_that_has_joined_is_elected_when_the_leader_has_not() -> None:
    a, b, c = member("a", "x"), member("b", "x"), member("c", "x")
    roster = roster_of(a, b, c)
    assert not roster.elect_joined_leader()
    roster.park_join(c, ignore)
    assert roster.elect_joined_leader()
    assert roster.leader_id == "c"
    roster.assert_sound()


def test_static_name_is_of_one_member_and_fences_others() -> None:
    roster = roster_of(member("a-1", "x", instance_id="a"), member("b", "x"))
    assert roster.check("a-1", "a") is ErrorCode.NONE
    assert roster.check("a-0", "a") is ErrorCode.FENCED_INSTANCE_ID
    assert roster.check("a-1", None) is ErrorCode.NONE
    assert roster.check("b", "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert roster.check("nobody", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_members_hold_up_the_others() -> None:
    roster = Roster(SharedBytes(MEMBER_BYTES_MAX))
    for name in "bc":
        roster.add_pending(name, Deadline(GROUP, "pending", name))
    assert not roster.has_all_joined
    roster.forget_pending("b")
    roster.add(member("c", "x"))
    assert not roster.pending
