"""Loads that run again and again: when each is due, how long it waits after a failure, and how far behind its table is.

`LoadTrack` decides, without I/O; `follow_loads` runs the loads that are due, one after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.model.errors import ConfigError, OttlaError
from ottla.runtime.clock import Clock
from ottla.spark.errors import DataLoss, RecordsRefused, SparkOptionError, TableRefused

# A load that fails waits for twice as long as the time before, up to the longer of the second value and its own rhythm.
RETRY_FIRST_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000
# To repeat these would not help: a person must change something.
_FINAL_ERRORS: Final = (ConfigError, SparkOptionError, DataLoss, RecordsRefused, TableRefused)
# How often a waiting follower checks `should_stop`.
_CHECK_EVERY_MS: Final = 200


class LoadTrack:
    """One table's loads.  Times are those of a monotonic clock, in ms; counts are since the process started."""

    def __init__(self, every_ms: int, now_ms: int) -> None:
        self._every_ms: Final = every_ms
        self._began_ms = now_ms
        self._due_ms = now_ms
        self.commits_count = 0
        self.files_count = 0
        self.rows_count = 0
        self.failures_count = 0
        # Dead letters by the reason.
        self.letters: Final[Counter[str]] = Counter()
        # How many passes have failed since the last one that did not, and since when.
        self.failures_running = 0
        self.failing_since_ms: int | None = None
        # Records of the logs that the table did not have when it was last compared with them; None: not compared yet.
        self.lag_records: int | None = None
        # Everything that the logs had at that time is in the table.
        self.complete_as_of_ms: int | None = None
        self.stopped_by: OttlaError | None = None
        self.last_error: OttlaError | None = None

    @property
    def refused(self) -> Mapping[str, int]:
        """Records that are not in the table, by the reason: dead letters, and the first that ended the loads."""
        found = Counter(self.letters)
        if isinstance(self.stopped_by, RecordsRefused):
            # How many would follow is not known.
            found[self.stopped_by.reason] += 1
        return found

    @property
    def due_ms(self) -> int | None:
        """When the next load starts; None: never again."""
        return None if self.stopped_by is not None else self._due_ms

    def lag_ms(self, now_ms: int) -> int | None:
        """At most so old is the oldest record that the table does not have; None: it was never complete."""
        return None if self.complete_as_of_ms is None else now_ms - self.complete_as_of_ms

    def begin(self, now_ms: int) -> None:
        self._began_ms = now_ms

    def committed(
        self,
        rows_count: int = 0,
        files_count: int = 0,
        commits_count: int = 0,
        *,
        left_count: int,
        refused: Mapping[str, int] | None = None,
    ) -> None:
        """More rows, files, commits and dead letters; `left_count` offsets of the plan are left."""
        self.rows_count += rows_count
        self.files_count += files_count
        self.commits_count += commits_count
        self.letters.update(refused or {})
        self.lag_records = left_count

    def succeed(self, now_ms: int, left_count: int) -> None:
        """A pass ended; with offsets left the next one starts when the loads that are due had theirs."""
        self.failures_running = 0
        self.failing_since_ms = self.last_error = None
        self.lag_records = left_count
        if left_count:
            self._due_ms = now_ms
        else:
            self.complete_as_of_ms = self._began_ms
            self._due_ms = max(now_ms, self._began_ms + self._every_ms)

    def fail(self, error: OttlaError, now_ms: int) -> int | None:
        """The time until the load is repeated, in ms; None: it is not."""
        self.failures_count += 1
        self.failures_running += 1
        self.last_error = error
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        if isinstance(error, _FINAL_ERRORS):
            self.stopped_by = error
            return None
        delay_ms = min(RETRY_FIRST_MS << min(self.failures_running - 1, 30), max(RETRY_MAX_MS, self._every_ms))
        self._due_ms = now_ms + delay_ms
        return delay_ms


@dataclass(frozen=True, slots=True)
class FollowedLoad:
    """`run` loads what there is, and returns how many offsets are left; it stops when its argument says so.

    `on_failure`: of an `OttlaError`; the time until the next attempt in ms, None: there is none.
    """

    name: str
    track: LoadTrack
    run: Callable[[Callable[[], bool]], int]
    on_failure: Callable[[OttlaError, int | None], None]


def follow_loads(
    loads: Sequence[FollowedLoad],
    clock: Clock,
    should_stop: Callable[[], bool],
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Until `should_stop`, or until no load is repeated.  A table with a backlog gives way to those that are due."""
    # Of several that are due at the same time the one whose last load is the longest ago comes first.
    order = list(loads)
    while not should_stop():
        waiting = [(due_ms, load) for load in order if (due_ms := load.track.due_ms) is not None]
        if not waiting:
            return
        due_ms, load = min(waiting, key=lambda each: each[0])
        if (wait_ms := due_ms - clock.monotonic_ms()) > 0:
            sleep(min(wait_ms, _CHECK_EVERY_MS) / 1000)
            continue
        order.remove(load)
        _run(load, order, clock, should_stop)
        order.append(load)


def _run(load: FollowedLoad, others: Sequence[FollowedLoad], clock: Clock, should_stop: Callable[[], bool]) -> None:
    began_ms = clock.monotonic_ms()
    commits_before = load.track.commits_count
    load.track.begin(began_ms)

    def gives_way() -> bool:
        if should_stop():
            return True
        now_ms = clock.monotonic_ms()
        return load.track.commits_count > commits_before and any(
            (due_ms := other.track.due_ms) is not None and due_ms <= now_ms for other in others
        )

    try:
        left_count = load.run(gives_way)
    except OttlaError as error:
        load.on_failure(error, load.track.fail(error, clock.monotonic_ms()))
    else:
        load.track.succeed(clock.monotonic_ms(), left_count)
