"""`ottla audit status`, `wait` and `lost-offsets` against a broker, without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from ottla.audit.commits import commit_counts
from ottla.audit.completeness import Completeness, CompletenessRules
from ottla.audit.count import NO_TOPIC_ID, AuditMessage, Report, ReportKey
from ottla.audit.snapshot import AuditSnapshot
from ottla.audit.topic import publish
from ottla.audit.waiting import NotComplete, wait_until_complete
from ottla.cli.program import command_of
from ottla.cli.verbs import VERBS
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.lost_offsets import LOST_OFFSETS_TOPIC, UNKNOWN_END, LostRange, write_losses
from ottla.testing.broker import RunningBroker

HOUR_MS = 3_600_000
# 2012-03-01T12:00Z
NOON_MS = 1_330_603_200_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with RunningBroker() as broker:
        yield broker.bootstrap


def tell(bootstrap: str, *messages: AuditMessage) -> None:
    with Cluster(bootstrap) as cluster:
        publish(cluster, messages)


def counts(tier: str, topic: str, records: dict[int, int], commit: str = "1") -> list[AuditMessage]:
    by_window = {NOON_MS + start: count for start, count in records.items()}
    return [*commit_counts(tier, commit, topic, by_window, int(time.time() * 1_000))]


def ended(topic: str) -> Report:
    return Report(ReportKey("producer", UUID(int=1), topic, NO_TOPIC_ID), 1, NOON_MS, has_ended=True)


def ottla_audit(*arguments: str) -> Result:
    return CliRunner().invoke(command_of("audit", VERBS["audit"]), arguments, standalone_mode=False)


def test_status_shows_each_tier_and_missing_records(bootstrap: str) -> None:
    tell(bootstrap, *counts("producer", "clicks", {0: 1_000, HOUR_MS: 9}), ended("clicks"))
    tell(bootstrap, *counts("lake", "clicks", {0: 1_000, HOUR_MS: 7}))
    outcome = ottla_audit("status", "clicks", "-b", bootstrap)
    assert outcome.return_value == 1, "records are missing"
    noon, one = (line.split() for line in outcome.stdout.splitlines() if " lake " in line and "/" in line)
    assert noon[:6] == ["clicks", "2012-03-01T12:00Z/2012-03-01T13:00Z", "lake", "1000", "-", "-"]
    assert (noon[6], noon[-1]) == ("1000", "100.00%"), "all of them came years later"
    assert one[3:5] == ["7", "2"]
    assert one[-1] == "77.77%"
    assert outcome.stdout.splitlines()[-1] == "clicks at lake is complete to 99.9% until 2012-03-01T13:00Z"
    assert ottla_audit("status", "clicks", "-b", bootstrap, "--threshold", "0.5").return_value == 0
    objects = [
        json.loads(line) for line in ottla_audit("status", "clicks", "-b", bootstrap, "--json").stdout.splitlines()
    ]
    assert [each["missing_records"] for each in objects if "records" in each] == [0, 0, 0, 2]
    assert objects[-1]["complete_until_ms"] == NOON_MS + HOUR_MS


def test_wait_returns_when_the_last_record_is_counted(bootstrap: str) -> None:
    tell(bootstrap, *counts("producer", "awaited", {0: 10}), ended("awaited"), *counts("lake", "awaited", {0: 9}))
    until_ms = NOON_MS + HOUR_MS
    looked = threading.Event()

    def load_the_rest() -> None:
        looked.wait()
        tell(bootstrap, *counts("lake", "awaited", {0: 1}, commit="2"))

    loading = threading.Thread(target=load_the_rest)
    loading.start()
    with Cluster(bootstrap) as cluster:
        status = wait_until_complete(cluster, "awaited", until_ms, poll_ms=20, on_status=lambda _: looked.set())
    loading.join()
    assert status.until_ms is not None
    assert status.until_ms >= until_ms
    outcome = ottla_audit("wait", "awaited", "--until", "2012-03-01T13:00", "-b", bootstrap)
    assert outcome.exit_code == 0, outcome.output


def test_wait_reports_missing_records_when_the_time_is_over(bootstrap: str) -> None:
    tell(bootstrap, *counts("producer", "short", {0: 10}), ended("short"), *counts("lake", "short", {0: 9}))
    with Cluster(bootstrap) as cluster, pytest.raises(NotComplete, match="lake has 9 of 10 records of short in 2012"):
        wait_until_complete(cluster, "short", NOON_MS + HOUR_MS, timeout_ms=1)
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("nothing", 1, 1)
    with Cluster(bootstrap) as cluster, pytest.raises(NotComplete, match="no counter of nothing before tier lake"):
        wait_until_complete(cluster, "nothing", NOON_MS, CompletenessRules(), timeout_ms=1)
    outcome = ottla_audit("wait", "short", "--until", "2012-03-01T13:00", "-b", bootstrap, "--timeout", "1ms")
    assert isinstance(outcome.exception, NotComplete)


def test_wait_for_a_topic_that_does_not_exist_names_the_nearest(bootstrap: str) -> None:
    tell(bootstrap, *counts("producer", "page-views", {0: 10}))
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("adverts", 1, 1)
    for misspelt, nearest in (("page-veiws", "page-views"), ("advert", "adverts")):
        outcome = ottla_audit("wait", misspelt, "--until", "2012-03-01T13:00", "-b", bootstrap)
        assert isinstance(outcome.exception, UnknownTopic)
        assert f"topic {misspelt} does not exist" in str(outcome.exception)
        assert outcome.exception.hint == f"did you mean {nearest}?"


def test_hour_after_one_that_lost_records_can_be_waited_for(bootstrap: str) -> None:
    tell(bootstrap, *counts("producer", "lossy", {0: 10, HOUR_MS: 10}), ended("lossy"))
    tell(bootstrap, *counts("lake", "lossy", {0: 9, HOUR_MS: 10}))
    until = ("wait", "lossy", "--until", "2012-03-01T14:00", "-b", bootstrap)
    assert isinstance(ottla_audit(*until, "--timeout", "1ms").exception, NotComplete)
    assert ottla_audit(*until, "--from", "2012-03-01T13:00").exit_code == 0


def test_lost_offsets_are_named_where_a_topic_lacks_records() -> None:
    with RunningBroker() as broker:
        for topic in ("unread", "untouched"):
            lake = counts("lake", topic, {0: 9})
            tell(broker.bootstrap, *counts("producer", topic, {0: 10}), ended(topic), *lake)
        with Cluster(broker.bootstrap) as cluster:
            write_losses(cluster, LOST_OFFSETS_TOPIC, "loads", [LostRange("unread", NO_TOPIC_ID, 0, 4, 5, "deleted")])
        until = ("--until", "2012-03-01T13:00", "--timeout", "1ms", "-b", broker.bootstrap)
        unreadable = "1 range of unread could not be read, as `ottla audit lost-offsets unread` shows"
        assert str(ottla_audit("wait", "unread", *until).exception).endswith(f"; {unreadable}")
        assert "could not be read" not in str(ottla_audit("wait", "untouched", *until).exception)
        status = ottla_audit("status", "unread", "untouched", "-b", broker.bootstrap)
        assert status.stderr.splitlines() == [unreadable]


def test_topic_whose_counts_do_not_fit_is_left_out_and_the_others_are_compared(bootstrap: str) -> None:
    misfit = commit_counts("producer", "1", "misfit", {0: 1}, int(time.time() * 1_000), window_ms=420_000)
    tell(bootstrap, *misfit, *counts("producer", "fits", {0: 3}), ended("fits"), *counts("lake", "fits", {0: 3}))
    other = ottla_audit("status", "fits", "-b", bootstrap)
    assert (other.exception, other.return_value) == (None, 0)
    both = ottla_audit("status", "fits", "misfit", "-b", bootstrap)
    assert both.return_value == 1
    assert "misfit is left out: tier producer counts misfit by windows of 420000 ms" in both.stderr
    assert "fits at lake is complete" in both.stdout


def test_wait_outlives_brokers_that_are_away() -> None:
    with RunningBroker() as broker:
        tell(broker.bootstrap, *counts("producer", "awaited", {0: 1}), ended("awaited"))
        looked, troubled = threading.Event(), threading.Event()
        found: list[Completeness] = []

        def wait() -> None:
            with Cluster(broker.bootstrap, ClientOptions(call_timeout_ms=500)) as cluster:
                found.append(
                    wait_until_complete(
                        cluster,
                        "awaited",
                        NOON_MS + HOUR_MS,
                        poll_ms=20,
                        on_status=lambda _: looked.set(),
                        on_trouble=lambda _: troubled.set(),
                    )
                )

        waiting = threading.Thread(target=wait)
        waiting.start()
        looked.wait()
        broker.kill()
        troubled.wait()
        broker.start()
        tell(broker.bootstrap, *counts("lake", "awaited", {0: 1}))
        waiting.join()
        assert found[0].is_complete_between(None, NOON_MS + HOUR_MS)


def test_lost_offsets_shows_each_range_once(bootstrap: str) -> None:
    assert ottla_audit("lost-offsets", "-b", bootstrap).stdout == "no range was lost\n"
    first, second = (
        LostRange("clicks", UUID(int=7), 3, *offsets, "deleted") for offsets in ((5, 9), (20, UNKNOWN_END))
    )
    with Cluster(bootstrap) as cluster:
        write_losses(cluster, LOST_OFFSETS_TOPIC, "loads", [first, second])
        write_losses(cluster, LOST_OFFSETS_TOPIC, "loads", [first])
    _, *rows = ottla_audit("lost-offsets", "-b", bootstrap).stdout.splitlines()
    assert [row.split()[:5] for row in rows] == [["clicks", "3", "5", "9", "4"], ["clicks", "3", "20", "-", "-"]]
    assert ottla_audit("lost-offsets", "other", "-b", bootstrap).stdout == "no range was lost\n"
    printed = [json.loads(line) for line in ottla_audit("lost-offsets", "-b", bootstrap, "--json").stdout.splitlines()]
    assert [(each["first_offset"], each["reader"], each["reason"]) for each in printed] == [
        (5, "loads", "deleted"),
        (20, "loads", "deleted"),
    ]


def test_book_of_an_empty_cluster_is_empty() -> None:
    with RunningBroker() as broker:
        outcome = ottla_audit("status", "-b", broker.bootstrap)
        assert (outcome.return_value, outcome.stdout) == (0, "no counts yet\n")
    assert AuditSnapshot() == AuditSnapshot([])
