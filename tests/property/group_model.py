"""A property test's view of a group beside its shard: clients, their requests, the log's contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.groups.commands import NO_GENERATION, MemberAssignment
from ottla.groups.group_log import GroupRecord
from ottla.groups.group_metadata import GROUP_KEY_VERSION, GroupMetadata, parse_group_value
from ottla.groups.offset_records import OFFSET_KEY_VERSION, decode_offset_value, parse_offset_key
from ottla.groups.replies import JoinReply
from ottla.model.error_code import ErrorCode

PARTITIONS_COUNT = 6


def stored_generations(records: Sequence[GroupRecord]) -> list[GroupMetadata | None]:
    """The group's own records in their order; None for a tombstone."""
    return [
        None if value is None else parse_group_value(value) for key, value in records if key[1] == GROUP_KEY_VERSION
    ]


def logged_offsets(records: Sequence[GroupRecord]) -> dict[tuple[str, str, int], int]:
    """The committed offsets by group, topic and partition, of these records."""
    committed: dict[tuple[str, str, int], int] = {}
    for key, value in records:
        if key[1] == OFFSET_KEY_VERSION:
            group, topic, partition = parse_offset_key(key)
            place = (group.decode(), topic.decode(), partition)
            if value is None:
                committed.pop(place, None)
            else:
                committed[place] = decode_offset_value(value).offset
    return committed


class Client:
    """A member's own view."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.joined: JoinReply | None = None

    @property
    def generation(self) -> int:
        return NO_GENERATION if self.joined is None else self.joined.generation

    def on_joined(self, reply: JoinReply) -> None:
        if reply.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = reply.member_id
        if reply.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_id = ""
        if reply.error is ErrorCode.NONE:
            self.joined = reply

    def assignments(self) -> list[MemberAssignment]:
        """As a leader: every partition to one member; as a follower, nothing."""
        assert self.joined is not None
        members = [member.member_id for member in self.joined.members]
        return [
            MemberAssignment(member_id, bytes(range(number, PARTITIONS_COUNT, len(members))))
            for number, member_id in enumerate(members)
        ]


class Owners:
    """The owner of each partition in each generation, by the responses."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}

    def note(self, client: Client, generation: int, assignment: bytes) -> None:
        # A returning static member has another id, and replaces the former one, which is fenced.
        owner = client.instance_id or client.member_id
        for partition in assignment:
            known = self._owners.setdefault((generation, partition), owner)
            assert known == owner, f"{known} and {owner} own {partition} in generation {generation}"

    def forget(self) -> None:
        """The group was deleted: generations restart."""
        self._owners.clear()


class Request:
    """`needs_end`: the log end at the decision of the reply, for replies that are decided at their request."""

    def __init__(self, what: str, asked_at_ms: int) -> None:
        self.what = what
        self.asked_at_ms = asked_at_ms
        self.needs_end: int | None = None
        self.replies: list[Any] = []

    def __repr__(self) -> str:
        return f"{self.what} asked at {self.asked_at_ms} ms: {self.replies}"
