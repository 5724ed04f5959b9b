"""The search index through kills: each line is indexed once, also after kills and when its topic is recreated."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from examples.search_index.index import Hit, IndexUnusable, LogIndex
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import ControlledBroker, Namespace, Record, Topic, produce
from tests.eventually import eventually
from tests.examples.dying_index import POINTS
from tests.examples.letters import set_aside
from tests.examples.program import Program

INDEX: Final = "examples.search_index"
DYING: Final = "tests.examples.dying_index"
PARTITIONS: Final = 3
NINE_MS: Final = 1_307_869_200_000  # 2011-06-12T09:00:00Z
WORDS: Final = ("payment", "answer", "timeout", "retry", "cache", "graph", "member")
MALFORMED: Final = (b"<html>502</html>", b'{"time": "soon"}', b"[]", b"\xff\xfe", b'{"time": "2011-06-12"}', None)


class Sent(NamedTuple):
    at_ms: int
    level: str
    service: str
    message: str


class Feed:
    """Sends lines, late, repeated and malformed ones among them, and remembers their offsets."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.lines: dict[tuple[int, int], Sent] = {}
        self.malformed: set[tuple[int, int]] = set()
        self._ends: Counter[int] = Counter()
        self._chance = random.Random(11)
        self._last = Sent(NINE_MS, "INFO", "cart", "began")

    def send(self, count: int, partitions: int = PARTITIONS) -> None:
        records = []
        for number in range(count):
            partition = self._chance.randrange(partitions)
            place = (partition, self._ends[partition])
            self._ends[partition] += 1
            if number % 20 == 7:
                self.malformed.add(place)
                value = self._chance.choice(MALFORMED)
            else:
                self.lines[place] = line = self._line()
                value = _encoded(line)
            records.append(Record(value, partition=partition))
        produce(self.topic, records)

    def _line(self) -> Sent:
        if self._chance.random() >= 0.1:  # otherwise the last one again
            late_ms = 7_200_000 if self._chance.random() < 0.1 else 0
            self._last = Sent(
                NINE_MS + len(self.lines) * 1_000 - late_ms,
                self._chance.choice(("INFO", "ERROR")),
                self._chance.choice(("cart", "feed")),
                " ".join(self._chance.choices(WORDS, k=4)),
            )
        return self._last


def _encoded(line: Sent) -> bytes:
    seconds, ms = divmod(line.at_ms - NINE_MS, 1_000)
    hours, seconds = divmod(seconds + 9 * 3_600, 3_600)
    time = f"2011-06-12T{hours:02}:{seconds // 60:02}:{seconds % 60:02}.{ms:03}Z"
    fields = {"time": time, "level": line.level.lower(), "service": line.service, "message": line.message, "more": 1}
    return json.dumps(fields).encode()


def _indexed(path: Path) -> list[Hit]:
    """Nothing as long as there is no index yet."""
    try:
        with LogIndex(path, has_writes=False) as index:
            return index.search("", limit=100_000)
    except IndexUnusable:
        return []


def _flags(topic: Topic, path: Path) -> list[str]:
    return ["--bootstrap-server", topic.bootstrap, "--topic", topic, "--index", str(path)]


@pytest.mark.slow
def test_index_has_each_line_once_when_it_is_killed_at_every_point_and_in_between(
    broker: ControlledBroker, namespace: Namespace, tmp_path: Path
) -> None:
    path = tmp_path / "logs.db"
    feed = Feed(namespace.topic("logs", partitions=PARTITIONS))
    flags = _flags(feed.topic, path)
    for point in POINTS:
        feed.send(200)
        with Program(DYING, point, "run", *flags) as dying:
            dying.wait_killed()
    _kill_while_lines_come(feed, path, flags)

    with Program(INDEX, "run", *flags) as program:
        program.wait_for("indexing")
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_partitions({feed.topic: PARTITIONS + 1})
        feed.send(200, PARTITIONS + 1)
        eventually(lambda: len(_indexed(path)), lambda count: count >= len(feed.lines))
        program.stop()

    found = _indexed(path)
    assert Counter((hit.partition, hit.offset) for hit in found) == Counter(list(feed.lines))
    assert {(hit.partition, hit.offset): Sent(*hit.line) for hit in found} == feed.lines
    assert set_aside(feed.topic) == feed.malformed
    with LogIndex(path, has_writes=False) as index:
        for word in WORDS:
            hits = index.search(word, service="feed", level="error", since_ms=NINE_MS, limit=100_000)
            assert Counter(Sent(*hit.line) for hit in hits) == Counter(
                line
                for line in feed.lines.values()
                if word in line.message.split() and line[1:3] == ("ERROR", "feed") and line.at_ms >= NINE_MS
            )


def _kill_while_lines_come(feed: Feed, path: Path, flags: list[str]) -> None:
    """Kill it when some of the lines are indexed, and more are in flight."""
    had_count, is_killed = len(_indexed(path)), threading.Event()

    def send() -> None:
        while not is_killed.is_set():
            feed.send(50)

    with Program(INDEX, "run", *flags) as program:
        program.wait_for("indexing")
        sender = threading.Thread(target=send)
        sender.start()
        try:
            eventually(lambda: len(_indexed(path)), lambda count: count > had_count + 200)
            program.kill()
        finally:
            is_killed.set()
            sender.join()


def test_recreated_topic_is_read_from_its_start_and_reported(
    broker: ControlledBroker, namespace: Namespace, tmp_path: Path
) -> None:
    path = tmp_path / "logs.db"
    topic = namespace.topic("logs")
    line = Sent(NINE_MS, "ERROR", "cart", "before")
    produce(topic, [_encoded(line)] * 3)
    with Program(INDEX, "run", *_flags(topic, path)) as program:
        eventually(lambda: len(_indexed(path)), lambda count: count == 3)
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).delete_topics([topic])
            eventually(lambda: topic not in [each.name for each in Admin(cluster).list_topics()])
            Admin(cluster).create_topic(topic, 1)
        # More than before: by offsets alone the index would skip the first three.
        produce(topic, [_encoded(line._replace(message="after"))] * 5)
        eventually(lambda: len(_indexed(path)), lambda count: count == 8)
        program.stop()
        assert "was deleted and recreated" in program.said
    assert Counter(hit.line.message for hit in _indexed(path)) == {"before": 3, "after": 5}


def test_second_process_that_writes_ends_with_an_error(namespace: Namespace, tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    topic = namespace.topic("logs")
    with Program(INDEX, "run", *_flags(topic, path)) as one, Program(INDEX, "run", *_flags(topic, path)) as other:
        eventually(lambda: _positions(path), lambda count: count == 1)
        line = _encoded(Sent(NINE_MS, "ERROR", "cart", "once"))
        sent_count = 0

        def is_seen() -> bool:
            return one.has_ended or other.has_ended or len(_indexed(path)) == sent_count

        while not (one.has_ended or other.has_ended):
            produce(topic, [line])
            sent_count += 1
            eventually(is_seen)
        refused, left = (one, other) if one.has_ended else (other, one)
        assert "by another process" in refused.said
        eventually(lambda: len(_indexed(path)) == sent_count)
        left.stop()
    assert [hit.offset for hit in _indexed(path)] == [*reversed(range(sent_count))]


def _positions(path: Path) -> int:
    try:
        with LogIndex(path, has_writes=False) as index:
            return len(index.positions())
    except IndexUnusable:
        return 0
