"""The interface between a shard and its groups, the same for both kinds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal, Protocol

from ottla.groups.commands import CommitOffsets
from ottla.groups.deadlines import DeadlineOwner
from ottla.groups.decision import Moment
from ottla.groups.group_log import GroupRecord
from ottla.model.error_code import ErrorCode
from ottla.observe.transition_history import TransitionHistory

GroupKind = Literal["classic", "consumer"]
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class Group(DeadlineOwner, Protocol):
    """A group of one shard.  Committed offsets are the shard's, under the group's id: they outlive its kind.

    The shard drops a group when it `is_forgettable` and has no committed offsets.
    """

    @property
    def history(self) -> TransitionHistory: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """As shown to users: `Empty`, `Stable`, ..."""
        ...

    @property
    def protocol_type(self) -> str:
        """`consumer`, `connect`, ...; empty for a group that only commits offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """It has no members: offsets may expire, the group may be deleted, and its kind may change."""
        ...

    @property
    def members_count(self) -> int: ...

    @property
    def has_records(self) -> bool:
        """Whether the log holds records of the group itself (not offsets) that a deletion must cover."""
        ...

    @property
    def is_forgettable(self) -> bool:
        """It has no records and no members: its shard drops it, unless it has committed offsets."""
        ...

    def empty_since_ms(self) -> int | None:
        """Wall time since when the group is empty, for the expiry of its offsets.

        None when it is not known, or when the group never had members: then each offset's own commit time counts.
        """
        ...

    def check_commit(self, command: CommitOffsets, moment: Moment) -> ErrorCode:
        """NONE when the sender may commit now (then its session restarts), else its error."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE when this member, or any client when none is given, may fetch committed offsets."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """NONE when offsets of topics without a reader (`read_among`) may be deleted now."""
        ...

    def read_among(self, topics: Collection[str]) -> Collection[str]:
        """Those of `topics` that a live member may be reading: their offsets are not deleted."""
        ...

    def tombstones(self) -> Sequence[GroupRecord]:
        """Tombstones for every record of the group itself that the log may hold."""
        ...

    def on_loaded(self, moment: Moment) -> None:
        """Replay has ended: restart every session, arm every state's deadline."""
        ...

    def fail_all(self, error: ErrorCode) -> None:
        """The shard leaves this broker: answer every parked request with `error`."""
        ...

    def suspend(self, error: ErrorCode) -> None:
        """Answer every parked request with `error`; its client sends it again, here after `resume` or elsewhere."""
        ...

    def resume(self, moment: Moment) -> None:
        """Members were refused since `suspend`: restart every session and every deadline of the state."""
        ...

    def stop(self) -> None:
        """The shard has dropped the group: disarm its deadlines."""
        ...
