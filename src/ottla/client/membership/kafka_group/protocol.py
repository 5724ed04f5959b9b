"""What both of Kafka's group protocols are to a member: an identity, an assignment, a lease, and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.client.membership.kafka_group.claims import GroupClaims
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey


class Purpose(Enum):
    TOPICS = "topics"
    OFFSETS = "offsets"
    COMMIT = "commit"
    MEMBERSHIP = "membership"


class Ask(NamedTuple):
    """A request.  `message` gives it in the version that both sides know, `at_least` of which it needs."""

    purpose: Purpose
    api: ApiKey
    message: Callable[[int], object]
    answer: type
    timeout_ms: float
    at_least: int = 0


CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class Outcome(Enum):
    DONE = "done"
    AGAIN = "again"
    """To be asked again, after a while."""

    MOVED = "moved"
    """The coordinator is another broker, or none now."""

    FENCED = "fenced"
    """Not a member any more: everything is lost, and the member joins again."""

    OTHER_PROTOCOL = "other protocol"
    """The group's members speak the other protocol, or the broker does not speak this one."""

    FAILED = "failed"
    """Nothing that time mends."""


class Verdict(NamedTuple):
    outcome: Outcome
    error: BrokerRefused | None = None


DONE: Final = Verdict(Outcome.DONE)

_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
# The coordinator did not do it now; nothing says that it never will.
_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        # A static member that was killed has its place until its session ends.
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
_HINTS: Final = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "stop other members, or raise group.max.size or group.consumer.max.size",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session_timeout_ms must be within the broker's"
    " group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client may not read the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client may not read the topic",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members speak the other group protocol, offer neither of the"
    " assignors range and roundrobin, or are no consumers: use another group, or stop them",
    ErrorCode.FENCED_INSTANCE_ID: "another member has this group_instance_id: each process needs a different one",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group has members of the classic protocol: stop them, or speak it, too",
}


def verdict_of(code: int, subject: str, detail: str | None = None) -> Verdict:
    """What an error code means to a member, where nothing else is said."""
    if not code:
        return DONE
    error_code = error_code_of(code)
    error = BrokerRefused(error_code, subject, detail, hint=_HINTS.get(error_code))
    if error_code in _MOVED:
        return Verdict(Outcome.MOVED, error)
    if error_code in _FENCED:
        return Verdict(Outcome.FENCED, error)
    if error_code in _PASSING or error_code.is_retriable:
        return Verdict(Outcome.AGAIN, error)
    return Verdict(Outcome.FAILED, error)


class GroupProtocol(Protocol):
    """One life of a member after the other, by one of the two protocols.  Pure: it gets times and answers."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The member's epoch, or its generation: with it offsets are read and written."""
        ...

    @property
    def lease_until_ms(self) -> int:
        """Before this moment no other member can own what is assigned here; 0: nothing is."""
        ...

    @property
    def reader(self) -> tuple[str | None, int]:
        """The member and its epoch as which the group's offsets are read; (None, -1): as no member."""
        ...

    @property
    def commit_version_min(self) -> int: ...

    @property
    def can_be_fenced(self) -> bool:
        """Whether a refusal may mean that the group has this member no longer, so that it must join again."""
        ...

    @property
    def is_settled(self) -> bool:
        """The group knows what is owned here, and has no further change."""
        ...

    @property
    def due_ms(self) -> int:
        """When the next request is due, if nothing happens before."""
        ...

    def assigned(self, ids: Mapping[str, UUID]) -> Mapping[TopicPartition, UUID]:
        """The assignment, with the ids of topics; `ids` are those of the topics that are known."""
        ...

    def is_missing_topics(self, ids: Mapping[str, UUID]) -> bool:
        """Whether something is assigned of a topic that `ids` does not have."""
        ...

    def on_topics(self) -> None:
        """The topics were read."""
        ...

    def next_ask(self, now_ms: int, claims: GroupClaims) -> Ask | None:
        """The request that is due now."""
        ...

    def on_answer(self, ask: Ask, answer: object, sent_ms: int, now_ms: int) -> Verdict: ...

    def on_no_answer(self, ask: Ask) -> None:
        """It may or may not have been executed."""
        ...

    def on_unsupported(self, ask: Ask) -> Verdict:
        """The broker does not know this request."""
        ...

    def on_refused_commit(self, code: ErrorCode) -> None:
        """A request to the coordinator must precede the next commit."""
        ...

    def on_fenced(self, code: ErrorCode) -> None:
        """The next life begins: nothing is owned."""
        ...

    def abandons(self, ask: Ask) -> bool:
        """Whether the answer to this request is not worth waiting for when the member leaves."""
        ...

    def leave(self) -> Ask | None:
        """The request that ends the membership; None when there is none to be ended."""
        ...
