"""The abuse alert through kills: it tells the windows of the actions that were sent, with their counts."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

from examples.abuse_alert.alert_topic import Alert, read_alerts
from ottla.testing import ControlledBroker, Namespace, Record, Topic, consume_all, produce
from tests.eventually import eventually
from tests.examples.letters import set_aside
from tests.examples.page import run_commands_of
from tests.examples.program import Program

NINE_MS: Final = 1_307_869_200_000
MINUTE_MS: Final = 60_000
WINDOW_MS: Final = 5 * MINUTE_MS
DAY_MS: Final = 24 * 60 * MINUTE_MS
LIMIT: Final = 12
PARTITIONS: Final = 3
# What is sent together is of so much time, and some of it late: together less than the delay of ten minutes.
SPAN_MS: Final = 4 * MINUTE_MS
LATE_MS_MAX: Final = 4 * MINUTE_MS
MALFORMED: Final = ("<html>", '{"id": "m1"}', '{"id": "m2", "at_ms": 9200000000000000000, "member": "eve"}', "[]")
# Spark starts within it on a machine with much other work.
WITHIN_S: Final = 400.0


class Feed:
    """Sends actions, late, repeated and malformed ones among them, and remembers each action once."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.actions: dict[str, tuple[str, int]] = {}
        self.malformed: set[tuple[int, int]] = set()
        self._ends: Counter[int] = Counter()
        self._chance = random.Random(7)
        self._spans_count = 0

    def send_span(self, count: int = 150) -> None:
        first_ms = NINE_MS + self._spans_count * SPAN_MS
        self._spans_count += 1
        values: list[str] = []
        for number in range(count):
            at_ms = first_ms + number * SPAN_MS // count
            if self._chance.random() < 0.1:
                at_ms -= self._chance.randrange(LATE_MS_MAX)
            # Ada does what others do together, from time to time.
            member = "ada" if self._chance.random() < 0.1 else f"member-{self._chance.randrange(20)}"
            values.append(self._action(member, at_ms))
            if self._chance.random() < 0.1:
                values.append(self._chance.choice(values))
        self._send([*values, *MALFORMED])

    def send_too_late(self, window_start_ms: int) -> None:
        """They would make an alert of a window that is complete."""
        self._send([self._encoded(f"late-{each}", "late", window_start_ms) for each in range(2 * LIMIT)])

    def send_last(self) -> None:
        """A day later, so that all windows before are complete."""
        self._send([self._action("last", NINE_MS + DAY_MS)])

    def expected(self) -> list[Alert]:
        counts: Counter[tuple[int, str]] = Counter()
        for member, at_ms in self.actions.values():
            newest_ms = at_ms - at_ms % MINUTE_MS
            for start_ms in range(newest_ms - WINDOW_MS + MINUTE_MS, newest_ms + 1, MINUTE_MS):
                counts[start_ms, member] += 1
        return [
            Alert(member, start_ms, start_ms + WINDOW_MS, count)
            for (start_ms, member), count in sorted(counts.items())
            if count > LIMIT
        ]

    def _action(self, member: str, at_ms: int) -> str:
        name = f"a{len(self.actions)}"
        self.actions[name] = (member, at_ms)
        return self._encoded(name, member, at_ms)

    def _encoded(self, name: str, member: str, at_ms: int) -> str:
        return json.dumps({"id": name, "at_ms": at_ms, "member": member})

    def _send(self, values: list[str]) -> None:
        records = []
        for value in values:
            partition = self._chance.randrange(PARTITIONS)
            if value in MALFORMED:
                self.malformed.add((partition, self._ends[partition]))
            self._ends[partition] += 1
            records.append(Record(value, partition=partition))
        produce(self.topic, records)


@pytest.mark.spark
@pytest.mark.slow
def test_alerts_are_those_of_the_input_when_the_program_is_killed(
    broker: ControlledBroker, namespace: Namespace, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    feed, alerts = Feed(namespace.topic("actions", partitions=PARTITIONS)), namespace.name("alerts")
    flags = ["--bootstrap-server", broker.bootstrap, "--topic", feed.topic, "--alerts", alerts]
    flags += ["--checkpoint", str(tmp_path / "checkpoint"), "--more-than", str(LIMIT), "--master", "local[2]"]
    flags += ["--spark", "spark.sql.shuffle.partitions=1"]

    for _ in range(5):
        feed.send_span()
    with Program("tests.examples.dying_alert", "run", *flags) as dying:
        dying.wait_killed()

    (told, *_) = read_alerts(broker.bootstrap, alerts)
    feed.send_too_late(told.start_ms)
    with Program("examples.abuse_alert", "run", *flags) as killed:
        # Once more those of the batch that was not committed, and then new ones.
        for _ in range(3):
            feed.send_span()
        told_count = len(read_alerts(broker.bootstrap, alerts))
        eventually(
            lambda: read_alerts(broker.bootstrap, alerts), lambda seen: len(seen) > told_count, within_s=WITHIN_S
        )
        killed.kill()

    feed.send_span()
    feed.send_last()
    expected = feed.expected()
    assert len(expected) > 5, "the input has something to tell"
    with Program("examples.abuse_alert", "run", *flags) as program:
        eventually(lambda: read_alerts(broker.bootstrap, alerts), lambda seen: seen == expected, within_s=WITHIN_S)
        eventually(lambda: set_aside(feed.topic), lambda seen: seen == feed.malformed, within_s=WITHIN_S)
        program.stop()

    assert read_alerts(broker.bootstrap, alerts) == expected
    values = defaultdict(set)
    for message in consume_all(alerts):
        values[message.key].add(message.value)
    assert {len(each) for each in values.values()} == {1}, "told again, an alert is the same"


@pytest.mark.spark
@pytest.mark.slow
def test_commands_of_the_page_print_what_it_says(
    broker: ControlledBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    run_commands_of("abuse_alert", broker, tmp_path, monkeypatch)
