"""A decision about a group: its time, and its result (records to append, then a reply)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.groups.group_log import GroupRecord


class Moment(NamedTuple):
    """The time of a command or a deadline.

    `wall_ms` is for what records and users see (commit times, expiry of offsets); it may jump.  `monotonic_ms` is for
    every time-out (sessions, rebalances, pending members); it never goes back.
    """

    wall_ms: int
    monotonic_ms: int


class Decision(NamedTuple):
    """`records` are appended as one batch and then replayed; after that `reply` is due, once the batch is stable.

    Deciding changed no durable state: when the append fails, `reply` is dropped and an error is sent instead.
    `reply` is None when there is no request (a deadline passed).
    """

    records: Sequence[GroupRecord]
    reply: object
