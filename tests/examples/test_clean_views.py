"""The cleaner of views: killed in the middle of its transactions, it has cleaned each view once in the end."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import ottla
from examples.clean_views.cleaner import clean_view
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from tests.eventually import eventually
from tests.examples.dying_cleaner import BEFORE_COMMIT, POINTS
from tests.examples.page import run_commands_of
from tests.examples.program import Program
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable

PARTITIONS: Final = 2
# A dead member of a group is noticed soon; a live one that a busy machine delays for so long only aborts.
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "250",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://example.com/Jobs/?trk=1", "/jobs"),
        ("/in/bob", "/in/bob"),
        ("https://example.com", "/"),
    ],
)
def test_page_is_the_path_of_the_url(url: str, page: str) -> None:
    value = json.dumps({"at_ms": 5, "member": "ada", "url": url}).encode()
    assert json.loads(clean_view(value)) == {"at_ms": 5, "member": "ada", "page": page}


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"member": 1, "url": "/"}', b'{"member": "ada"}', b"\xff"])
def test_what_is_no_view_is_a_value_error(value: bytes | None) -> None:
    with pytest.raises(ValueError):
        clean_view(value)


@pytest.fixture(
    scope="module", params=[BrokerKind.OTTLA, pytest.param(BrokerKind.APACHE_KAFKA, marks=pytest.mark.interop)]
)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    try:
        with either_broker(request.param, SETTINGS) as address:
            yield address
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


class Site:
    """The topics of one cleaner, with views whose members count from 0, and some records that are no views."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.raw, self.clean, self.name = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("raw", "clean", "cleaner"))
        self.views_count = self.bad_count = 0
        with Cluster(bootstrap) as cluster:
            for topic in (self.raw, self.clean, f"{self.raw}.dead-letter"):
                Admin(cluster).create_topic(topic, PARTITIONS)

    def feed(self, count: int) -> None:
        with ottla.Producer(self.bootstrap) as producer:
            for number in range(self.views_count, self.views_count + count):
                view = {"at_ms": number, "member": str(number), "url": f"/P/{number}?trk=1"}
                producer.send(self.raw, json.dumps(view).encode(), key=b"%d" % number)
            producer.send(self.raw, b"no view %d" % self.bad_count)
        self.views_count += count
        self.bad_count += 1

    def arguments(self, number: int = 0) -> list[str]:
        """Of one of the cleaners that run at the same time."""
        names = ["--group", self.name, "--transactional-id", f"{self.name}-{number}"]
        return ["--bootstrap-server", self.bootstrap, "--from", self.raw, "--to", self.clean, *names]

    def wait_cleaned(self) -> None:
        eventually(self.is_complete, every_s=0.5)

    def dies(self, point: str) -> None:
        with Program("tests.examples.dying_cleaner", point, *self.arguments()) as program:
            program.wait_killed()

    def values(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        for partition in range(PARTITIONS):
            with ottla.SimpleConsumer(self.bootstrap, topic, partition, isolation_level="read_committed") as consumer:
                offset = 0
                while messages := consumer.fetch(offset, max_wait_ms=0):
                    found += [message.value or b"" for message in messages]
                    offset = messages[-1].offset + 1
        return found

    def is_complete(self) -> bool:
        return (
            len(self.values(self.clean)) >= self.views_count
            and len(self.values(f"{self.raw}.dead-letter")) >= self.bad_count
        )

    def assert_each_once(self) -> None:
        views = [json.loads(value) for value in self.values(self.clean)]
        assert sorted(int(view["member"]) for view in views) == list(range(self.views_count))
        assert all(view["page"] == f"/p/{view['member']}" for view in views)
        bad = sorted(self.values(f"{self.raw}.dead-letter"))
        assert bad == [b"no view %d" % number for number in range(self.bad_count)]


def run_through(site: Site, points: tuple[str, ...]) -> None:
    """Killed at these points, one after the other, and then to the end of what is there."""
    for point in points:
        site.feed(200)
        site.dies(point)
    site.feed(100)
    with Program("examples.clean_views", *site.arguments()) as program:
        site.wait_cleaned()
        program.stop()
        assert "transactions aborted" in program.said
    site.assert_each_once()


def test_commands_print_the_output_on_the_page(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_commands_of("clean_views", bootstrap, tmp_path, monkeypatch)


def test_cleaner_that_was_killed_before_its_commit_cleans_each_view_once(bootstrap: str) -> None:
    """What it has sent is aborted by the next run, and the group's offsets are those of before."""
    run_through(Site(bootstrap), (BEFORE_COMMIT,))


def test_cleaner_that_is_killed_again_and_again_cleans_each_view_once(bootstrap: str) -> None:
    run_through(Site(bootstrap), POINTS * 2)


def test_cleaners_that_come_and_go_clean_each_view_once(bootstrap: str) -> None:
    """Partitions move between them in the middle of transactions, also by a death."""
    site = Site(bootstrap)
    site.feed(3_000)
    with Program("examples.clean_views", *site.arguments(0)) as first:
        eventually(lambda: site.values(site.clean), every_s=0.1)
        with Program("examples.clean_views", *site.arguments(1)) as second:
            site.feed(3_000)
            site.wait_cleaned()
            site.feed(3_000)
            first.kill()
            site.feed(1_000)
            site.wait_cleaned()
            with Program("examples.clean_views", *site.arguments(0)) as again:
                site.feed(3_000)
                second.stop()
                site.feed(1_000)
                site.wait_cleaned()
                again.stop()
    site.assert_each_once()
