"""The abuse alert through kills: it alerts for the windows of the sent actions, with their counts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

from examples.abuse_alert.alert_topic import Alert, read_alerts
from ottla.testing import ControlledBroker, Namespace, Topic, consume_all
from tests.eventually import eventually
from tests.examples.feed import DAY_MS, MINUTE_MS, NINE_MS, PARTITIONS, WITHIN_S, Feed
from tests.examples.letters import set_aside
from tests.examples.program import Program

WINDOW_MS: Final = 5 * MINUTE_MS
LIMIT: Final = 12
MALFORMED: Final = ("<html>", '{"id": "m1"}', '{"id": "m2", "at_ms": 9200000000000000000, "member": "eve"}', "[]")


class Actions(Feed):
    """Remembers each action once."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic, MALFORMED, events_count=150, seed=7)
        self.actions: dict[str, tuple[str, int]] = {}

    def event(self, number: int, at_ms: int) -> str:
        # Ada sometimes does as much as all others together.
        member = "ada" if self.chance.random() < 0.1 else f"member-{self.chance.randrange(20)}"
        return self._action(member, at_ms)

    def send_too_late(self, window_start_ms: int) -> None:
        """Send actions that would make an alert of a complete window."""
        self.send([self._encoded(f"late-{each}", "late", window_start_ms) for each in range(2 * LIMIT)])

    def send_last(self) -> None:
        """A day later, so that all windows before are complete."""
        self.send([self._action("last", NINE_MS + DAY_MS)])

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


@pytest.mark.spark
@pytest.mark.slow
def test_alerts_are_those_of_the_input_when_the_program_is_killed(
    broker: ControlledBroker, namespace: Namespace, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    feed, alerts = Actions(namespace.topic("actions", partitions=PARTITIONS)), namespace.name("alerts")
    flags = ["--bootstrap-server", broker.bootstrap, "--topic", feed.topic, "--alerts", alerts]
    flags += ["--checkpoint", str(tmp_path / "checkpoint"), "--more-than", str(LIMIT), "--master", "local[2]"]
    flags += ["--spark", "spark.sql.shuffle.partitions=1"]

    for _ in range(5):
        feed.send_span()
    with Program("tests.examples.dying_alert", "run", *flags) as dying:
        dying.wait_killed()

    (alert, *_) = read_alerts(broker.bootstrap, alerts)
    feed.send_too_late(alert.start_ms)
    with Program("examples.abuse_alert", "run", *flags) as killed:
        # Those of the uncommitted batch again, and then new ones.
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
    assert len(expected) > 5, "the input has alerts"
    with Program("examples.abuse_alert", "run", *flags) as program:
        eventually(lambda: read_alerts(broker.bootstrap, alerts), lambda seen: seen == expected, within_s=WITHIN_S)
        eventually(lambda: set_aside(feed.topic), lambda seen: seen == feed.malformed, within_s=WITHIN_S)
        program.stop()

    assert read_alerts(broker.bootstrap, alerts) == expected
    values = defaultdict(set)
    for message in consume_all(alerts):
        values[message.key].add(message.value)
    assert {len(each) for each in values.values()} == {1}, "a repeated alert is the same"
