"""The conditions of a broker's machine that a test sets, and the lines of JSON that send them to its process.

The test's process sends a `Start`, then `Conditions` as often as they change, all of them each time; each gets a line
`{}` when it is in force.  A process whose test has gone reads the end of the channel, and ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

IN_FORCE: Final = b"{}\n"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The default is the machine as it is.

    wall_ahead_ms       the wall clock shows so much more than the machine's (or less)
    wall_stands_at_ms   it is frozen at this moment instead; None: it runs
    timers_ahead_ms     so much more time has passed for time-outs, by the monotonic clock
    is_disk_full        no file of the broker grows, none is made
    answers_late_ms     requests are read so much later than they arrive
    flushes_late_ms     each flush to the disk takes so much longer
    """

    wall_ahead_ms: int = 0
    wall_stands_at_ms: int | None = None
    timers_ahead_ms: int = 0
    is_disk_full: bool = False
    answers_late_ms: int = 0
    flushes_late_ms: int = 0

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Conditions:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Start:
    """How the process starts; `is_temporary`: it removes `data_dir` when its test has gone."""

    data_dir: str
    is_temporary: bool
    listen: str
    settings: Mapping[str, str] = field(default_factory=dict)
    admin_listen: str | None = None
    insecure_listen: bool = False
    conditions: Conditions = field(default_factory=Conditions)

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Start:
        found = json.loads(line)
        return cls(**{**found, "conditions": Conditions(**found["conditions"])})
