"""When loads that run again and again are due, and what a failure does; no Spark, and time is turned by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client.wire.errors import ClientError
from ottla.model.errors import ConfigError, OttlaError
from ottla.spark.errors import ColumnsRefused, DataLoss, LakeError, RecordsRefused, SparkOptionError, TableRefused
from ottla.spark.lake.following import RETRY_FIRST_MS, RETRY_MAX_MS, FollowedLoad, LoadTrack, follow_loads
from ottla.testing.fake_clock import FakeClock

EVERY_MS = 10_000


class Service:
    """Tables with scripts: each entry is what one load does."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ran: list[tuple[str, int]] = []
        self.reported: list[tuple[str, OttlaError, int | None]] = []
        self.loads: list[FollowedLoad] = []
        self._begin_ms = self.clock.monotonic_ms()

    @property
    def now_ms(self) -> int:
        """Since the start."""
        return self.clock.monotonic_ms() - self._begin_ms

    def add(self, name: str, *script: OttlaError | int, every_ms: int = EVERY_MS, takes_ms: int = 0) -> LoadTrack:
        """An error, or how many commits there are until the table is complete; after the script nothing is left."""
        track = LoadTrack(every_ms, self.clock.monotonic_ms())
        steps = list(script)

        def run(stops: Callable[[], bool]) -> int:
            self.ran.append((name, self.now_ms))
            step = steps.pop(0) if steps else 0
            if isinstance(step, OttlaError):
                raise step
            while step and not stops():
                self.clock.advance(takes_ms)
                step -= 1
                track.committed(5, 2, 1, left_count=step * 5)
            if step:
                steps.insert(0, step)
            return step * 5

        def report(error: OttlaError, retry_ms: int | None) -> None:
            self.reported.append((name, error, retry_ms))

        self.loads.append(FollowedLoad(name, track, run, report))
        return track

    def run_until(self, end_ms: int) -> None:
        follow_loads(
            self.loads,
            self.clock,
            lambda: self.now_ms >= end_ms,
            lambda seconds: self.clock.advance(max(1, round(seconds * 1_000))),
        )


@pytest.fixture
def service() -> Service:
    return Service()


def test_each_table_is_loaded_in_its_own_rhythm(service: Service) -> None:
    service.add("clicks", every_ms=10_000)
    service.add("orders", every_ms=25_000)
    service.run_until(55_000)
    assert [at_ms for name, at_ms in service.ran if name == "clicks"] == [0, 10_000, 20_000, 30_000, 40_000, 50_000]
    assert [at_ms for name, at_ms in service.ran if name == "orders"] == [0, 25_000, 50_000]


def test_failed_load_is_repeated_after_a_time_that_doubles_up_to_a_limit(service: Service) -> None:
    track = service.add("clicks", *[ClientError("no broker") for _ in range(9)])
    service.run_until(400_000)
    waits = [retry_ms for _, _, retry_ms in service.reported]
    assert waits[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert waits[-2:] == [RETRY_MAX_MS, RETRY_MAX_MS]
    assert track.failures_count == 9
    # It has recovered.
    assert (track.failures_running, track.failing_since_ms, track.last_error) == (0, None, None)


def test_lost_race_is_repeated_and_a_wrong_option_is_not(service: Service) -> None:
    race = service.add("raced", LakeError("another load of these topics was committed meanwhile"), 1)
    wrong = service.add("wrong", SparkOptionError("the option 'x' is unknown"), 1)
    gone = service.add("gone", DataLoss("records are gone"), 1)
    bad = service.add("bad", RecordsRefused("the record at offset 3 has no 'id'"), 1)
    mixed = service.add("mixed", ColumnsRefused("the column 'n' is string in the table"), 1)
    other = service.add("other", TableRefused("the table is partitioned by nothing"), 1)
    service.run_until(30_000)
    assert isinstance(bad.stopped_by, RecordsRefused)
    assert (dict(bad.refused), dict(mixed.refused), dict(other.refused)) == ({"change": 1}, {"columns": 1}, {})
    assert (race.commits_count, race.stopped_by) == (1, None)
    assert (wrong.commits_count, gone.commits_count) == (0, 0)
    assert isinstance(wrong.stopped_by, SparkOptionError)
    assert isinstance(gone.stopped_by, DataLoss)
    assert {name for name, _, retry_ms in service.reported if retry_ms is None} == {
        "wrong",
        "gone",
        "bad",
        "mixed",
        "other",
    }


def test_service_ends_when_no_table_is_left(service: Service) -> None:
    service.add("wrong", ConfigError("no such file"))
    service.run_until(10**9)
    assert service.now_ms == 0


def test_table_with_a_backlog_gives_way_after_a_commit_to_those_that_are_due(service: Service) -> None:
    backlog = service.add("backlog", 5, takes_ms=10_000)
    service.add("small", 0, every_ms=10_000)
    service.run_until(51_000)
    assert [name for name, _ in service.ran[:6]] == ["backlog", "small", "backlog", "small", "backlog", "small"]
    assert backlog.commits_count == 5


def test_table_alone_loads_its_backlog_in_one_pass(service: Service) -> None:
    track = service.add("backlog", 5, takes_ms=1_000)
    service.run_until(6_000)
    assert service.ran == [("backlog", 0)]
    assert (track.rows_count, track.files_count, track.commits_count, track.lag_records) == (25, 10, 5, 0)


def test_lag_counts_from_the_start_of_the_last_complete_load(service: Service) -> None:
    track = service.add("clicks", 3, ClientError("no broker"), ClientError("no broker"), takes_ms=1_000)
    assert track.lag_ms(service.clock.monotonic_ms()) is None
    service.run_until(3_000)
    assert track.lag_ms(service.clock.monotonic_ms()) == 3_000
    service.run_until(12_000)
    # The loads since then failed.
    assert track.lag_ms(service.clock.monotonic_ms()) == 12_000
    service.run_until(13_600)
    assert track.lag_ms(service.clock.monotonic_ms()) == 600
