"""The groups of one partition of `__consumer_offsets`: decide, log, apply.

A command is decided on the applied state, its records are appended as one batch, and `replay`, the very function that
start-up uses, applies them.  The reply leaves when the log is stable up to the batch's end.  Commands that arrive
meanwhile are decided on the applied state and are released by the flush that covers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.groups.commands import Command
from ottla.groups.group_log import GroupLog
from ottla.groups.moment import Moment
from ottla.groups.settings import GroupSettings
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode


class GroupShard:
    """`new_member_id` makes a member id that nobody has, from a client's id."""

    def __init__(
        self, log: GroupLog, settings: GroupSettings, new_member_id: Callable[[str], str], topics: TopicsImage
    ) -> None:
        raise NotImplementedError

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record, at start-up and live.  Raises `GroupRecordError` (an `OttlaError`) for damaged bytes.

        Unknown versions of keys are skipped.
        """
        raise NotImplementedError

    def loaded(self, moment: Moment) -> None:
        """Replay has ended: every session starts anew."""
        raise NotImplementedError

    # The type of the reply depends on the command: see `commands`.
    def submit(self, command: Command, reply: Callable[[Any], None], moment: Moment) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the type that the command names."""
        raise NotImplementedError

    def on_stable(self, stable_end: int) -> None:
        """The log is stable below `stable_end`: replies that waited for it leave, in the order of their appends."""
        raise NotImplementedError

    def on_time(self, moment: Moment) -> None:
        """Let every deadline that has passed have its effect."""
        raise NotImplementedError

    def next_due_ms(self) -> int | None:
        """The monotonic time at which `on_time` should be called next; calling too early is harmless."""
        raise NotImplementedError

    def on_topics_changed(self, topics: TopicsImage, moment: Moment) -> None:
        """Committed offsets of topics that are gone get tombstones; consumer groups look at the new topics."""
        raise NotImplementedError

    def fail_all(self, error: ErrorCode) -> None:
        """The partition leaves this broker, or its disk failed: every waiting request gets `error`.

        The shard is of no use afterwards: a submit is answered with the same error.
        """
        raise NotImplementedError
