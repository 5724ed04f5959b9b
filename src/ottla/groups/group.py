"""The interfaces between a shard and its groups: a group of either kind, and the services that it uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, Protocol

from ottla.groups.commands import CommitOffsets, TransactionalProducer
from ottla.groups.deadlines import Deadline, DeadlineOwner, Deadlines
from ottla.groups.group_log import GroupRecord
from ottla.groups.settings import GroupSettings
from ottla.groups.shared_bytes import SharedBytes
from ottla.model.error_code import ErrorCode
from ottla.observe.transition_history import TransitionHistory
from ottla.runtime.clock import Moment

# A client that never returns costs an id, and possibly a group made for it alone, for the session time-out that it
# requested: up to half an hour.  So an id expires after the shard has issued this many others; a client that joins with
# an expired one gets UNKNOWN_MEMBER_ID, and requests another.
ISSUED_IDS_MAX: Final = 10_000


class IssuedMemberIds:
    """The newest ids, used ones included, by the deadlines that end them."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines: Final = deadlines
        self._newest: Final[deque[Deadline]] = deque()

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, deadline: Deadline, lasts_ms: int, moment: Moment) -> None:
        """An id was issued: `deadline` passes after `lasts_ms`, or when too many others were issued."""
        self._deadlines.arm(deadline, moment.monotonic_ms + lasts_ms)
        self._newest.append(deadline)
        if len(self._newest) > ISSUED_IDS_MAX:
            oldest = self._newest.popleft()
            if oldest.due_ms is not None:
                self._deadlines.arm(oldest, moment.monotonic_ms)

    def clear(self) -> None:
        self._newest.clear()


class ShardServices(Protocol):
    """Appends before anything durable changes, and releases answers only when the state they reveal is stable."""

    @property
    def settings(self) -> GroupSettings: ...

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def issued_ids(self) -> IssuedMemberIds: ...

    @property
    def member_bytes(self) -> SharedBytes: ...

    def new_member_id(self, prefix: str) -> str:
        """A new member id: `prefix`, a hyphen, a random part."""
        ...

    def write(
        self, records: Sequence[GroupRecord], moment: Moment, producer: TransactionalProducer | None = None
    ) -> ErrorCode:
        """Append `records` as one batch and replay them; in the transaction of `producer`, if any.

        When this is not NONE, nothing was appended or changed.
        """
        ...

    # Replies of different types pass through here: see `commands` for the type of each.
    def answer(self, reply: Callable[[Any], None], value: object) -> None:
        """Call `reply(value)` when everything that was appended before is stable."""
        ...


GroupKind = Literal["classic", "consumer"]
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class Group(DeadlineOwner, Protocol):
    """A group of one shard.  Committed offsets are the shard's, under the group's id: they outlive its kind.

    The shard drops a group when it `is_forgettable` and has no offsets, neither committed nor pending.
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
