"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getsizeof

from ottla.groups.commands import JoinGroup, JoinProtocol
from ottla.groups.deadlines import Deadline
from ottla.groups.group_metadata import StoredMember
from ottla.groups.replies import DescribedMember, JoinReply, SyncReply
from ottla.groups.shared_bytes import BARE_MEMBER_BYTES, bytes_of_protocols, bytes_of_texts, network_of


class Member:
    """A member's metadata and its parked requests.

    While one of its requests is parked, its session does not run (it cannot heartbeat); only a member that has not yet
    received its id is removed after `NEW_MEMBER_JOIN_TIMEOUT_MS`.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "has_synced",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
        "waiter",
    )

    def __init__(self, stored: StoredMember, protocols: Sequence[JoinProtocol], session: Deadline) -> None:
        self.member_id = stored.member_id
        self.instance_id = stored.instance_id
        self.take_over(stored)
        self.protocols: Sequence[JoinProtocol] = protocols
        self.session = session
        self.join_reply: Callable[[JoinReply], None] | None = None
        self.sync_reply: Callable[[SyncReply], None] | None = None
        # In the current generation.
        self.has_synced = True
        # Its first join has not been answered.
        self.is_new = False
        # The connection that sent its first join, while that is parked.
        self.waiter: object | None = None

    def take_over(self, stored: StoredMember) -> None:
        """The member's part of a logged generation, without its protocols."""
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.session_timeout_ms = stored.session_timeout_ms
        self.assignment = stored.assignment

    @property
    def is_waiting(self) -> bool:
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for this protocol; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def matches(self, protocols: Sequence[JoinProtocol]) -> bool:
        """The very same protocols, with the same metadata, in the same order of preference."""
        return len(self.protocols) == len(protocols) and all(
            mine == other for mine, other in zip(self.protocols, protocols, strict=True)
        )

    @property
    def network(self) -> str:
        return network_of(self.client_host)

    @property
    def held_bytes(self) -> int:
        """Its memory: metadata and assignment."""
        texts = bytes_of_texts((self.member_id, self.instance_id, self.client_id, self.client_host))
        return BARE_MEMBER_BYTES + texts + bytes_of_protocols(self.protocols) + getsizeof(self.assignment)

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its own protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def describe(self, protocol_name: str | None, *, is_stable: bool) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name) if is_stable else b"",
            self.assignment,
        )

    def stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )


def newcomer(member_id: str, command: JoinGroup) -> StoredMember:
    """A member as its JoinGroup describes it."""
    return StoredMember(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        b"",
        b"",
    )
