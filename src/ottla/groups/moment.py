"""The time of a decision: two clocks at once."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """The time of a command or a deadline.

    `wall_ms` is for what records and users see (commit times, expiry of offsets); it may jump.  `monotonic_ms` is for
    every time-out (sessions, rebalances, pending members); it never goes back.
    """

    wall_ms: int
    monotonic_ms: int
