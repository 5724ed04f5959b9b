"""A consumer's place in its group, as the streams see it: a Kafka group, or one of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ottla.client.groups.group_types import GroupMetadata
from ottla.client.groups.subscription import Subscription
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition


class Failed(NamedTuple):
    """The membership is over and cannot be mended here; every claim has had its `Lost`.  The user gets the error."""

    error: OttlaError


class CommitRefused(NamedTuple):
    """The commit of this offset failed, and is not retried; the claim stays."""

    partition: TopicPartition
    claim: ClaimId
    offset: int
    error: OttlaError


Event: TypeAlias = Start | Revoke | Released | Lost | Committed | CommitRefused | Settled | Blocked | Left | Failed
OnEvents: TypeAlias = Callable[[Sequence[Event]], None]


class Membership(Protocol):
    """Has a thread, from `join` to the end; every method may be called from any thread and returns at once.

    * Each `Start` is ended by exactly one `Lost` or `Released` of its claim; a partition has one claim at a time.
      Until then the stream may hand out, while `clock.boottime_ms()` is below `hand_out_until_ms`.
    * After `Revoke` nothing more is handed out, and `on_stopped` says what was passed; it is committed with the
      release.  `Lost` may come before, after, or instead of the `Revoke`: nothing is committed then.
    * `Start.offset` is the next offset to read, `NO_OFFSET` where the group has none.
    * `commit` is answered for each partition by `Committed` with this offset or a later one, by `CommitRefused`, or by
      the end of the claim.  Offsets of claims that are over are dropped.
    * After `leave` everything owned is revoked, then `Left` is the last event.  After `Failed` nothing follows.
    """

    @property
    def hand_out_until_ms(self) -> int:
        """By `Clock.boottime_ms`: before this moment no other member can own what this one has.  0: not a member."""
        ...

    def group_metadata(self) -> GroupMetadata | None:
        """As which member a transaction commits offsets of the partitions that are owned now; None: not a member.

        The group refuses them once it may have given one of these partitions to another member.  Raises ConfigError
        where the group is one of the tree: those take part in no transactions.
        """
        ...

    def join(self, subscription: Subscription, on_events: OnEvents) -> None:
        """Become a member.  `on_events` is called on the membership's thread, in order: it queues them and wakes."""
        ...

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        """Everything below each offset was handed out by that claim and passed (or the user has sought there)."""
        ...

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        """After `Revoke`: nothing is handed out any more, and everything below `offset` was passed; NO_OFFSET: there is
        nothing to commit, as the stream had no position, or transactions commit it.
        """
        ...

    def leave(self) -> None:
        """Give everything back; `Left` follows.  The caller bounds how long it waits for it, then calls `close`."""
        ...

    def close(self) -> None:
        """End the thread and its connections, whether it has left or not; returns when the thread has ended."""
        ...


class ChangingMembership(Membership, Protocol):
    """One whose subscription may change while it lasts."""

    def subscribe(self, subscription: Subscription) -> None:
        """Read this in place of what was read before.  What is in both stays, except where the group's protocol gives
        everything back in a rebalance (the classic one).
        """
        ...
