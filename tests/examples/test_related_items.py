"""The related items through kills: each session of the input is in the counts once."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path
from typing import Final

import pytest

from examples.related_items.counts import CountsUnusable, Pair, PairCounts
from ottla.testing import ControlledBroker, Namespace, Topic
from tests.eventually import eventually
from tests.examples.dying_counts import POINTS
from tests.examples.feed import DAY_MS, MINUTE_MS, NINE_MS, PARTITIONS, WITHIN_S, Feed
from tests.examples.letters import set_aside
from tests.examples.program import Program

GAP_MS: Final = 5 * MINUTE_MS
ITEMS_MAX: Final = 8
MALFORMED: Final = ("<html>", '{"item": "/jobs/1"}', '{"at_ms": -1, "member": "eve", "item": "/jobs/1"}', "7")


class Views(Feed):
    """Remembers each view."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic, MALFORMED, events_count=80, seed=5)
        self.views: list[tuple[str, int, str]] = []

    def event(self, number: int, at_ms: int) -> str:
        # The crawler views more items than a session may have.
        member = "crawler" if number % 10 == 0 else f"member-{self.chance.randrange(60)}"
        self.views.append((member, at_ms, f"/jobs/{self.chance.randrange(15)}"))
        return _encoded(*self.views[-1])

    def send_too_late(self) -> None:
        """A session that ended before every other."""
        self.send([_encoded("late", NINE_MS - 60 * MINUTE_MS, f"/jobs/{item}") for item in range(3)])

    def send_last(self) -> None:
        """A day later, so that all sessions before are complete."""
        self.send([_encoded("last", NINE_MS + DAY_MS, "/jobs/1")])

    def sessions(self) -> list[set[str]]:
        """The items of each session."""
        found: list[set[str]] = []
        times = defaultdict(list)
        for member, at_ms, item in self.views:
            times[member].append((at_ms, item))
        for views in times.values():
            last_ms = None
            for at_ms, item in sorted(views):
                assert last_ms is None or at_ms - last_ms != GAP_MS, "the input is unambiguous"
                if last_ms is None or at_ms - last_ms > GAP_MS:
                    found.append(set())
                found[-1].add(item)
                last_ms = at_ms
        return found

    def expected(self) -> set[Pair]:
        counts: Counter[tuple[str, str]] = Counter()
        for items in self.sessions():
            if len(items) <= ITEMS_MAX:
                counts.update(permutations(items, 2))
        return {Pair(item, other, count) for (item, other), count in counts.items()}


def _encoded(member: str, at_ms: int, item: str) -> str:
    return json.dumps({"at_ms": at_ms, "member": member, "item": item})


@pytest.mark.spark
@pytest.mark.slow
def test_counts_are_those_of_the_input_when_the_program_is_killed(
    broker: ControlledBroker, namespace: Namespace, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    feed, path = Views(namespace.topic("views", partitions=PARTITIONS)), tmp_path / "related.db"
    flags = ["--bootstrap-server", broker.bootstrap, "--topic", feed.topic, "--counts", str(path)]
    flags += ["--checkpoint", str(tmp_path / "checkpoint"), "--gap", "5 minutes", "--items-max", str(ITEMS_MAX)]
    flags += ["--master", "local[2]", "--spark", "spark.sql.shuffle.partitions=1"]

    for point in POINTS:
        for _ in range(6):
            feed.send_span()
        with Program("tests.examples.dying_counts", point, "run", *flags) as dying:
            dying.wait_killed()
    assert _pairs(path), "what was committed before the last kill"

    feed.send_too_late()
    feed.send_span()
    feed.send_last()
    expected = feed.expected()
    assert any(len(items) > ITEMS_MAX for items in feed.sessions())
    with Program("examples.related_items", "run", *flags) as program:
        eventually(lambda: _pairs(path), lambda seen: seen == expected, within_s=WITHIN_S)
        eventually(lambda: set_aside(feed.topic), lambda seen: seen == feed.malformed, within_s=WITHIN_S)
        program.stop()

    assert _pairs(path) == expected
    with PairCounts(path, has_writes=False) as counts:
        best = sorted(
            (pair for pair in expected if pair.item == "/jobs/3"), key=lambda pair: (-pair.sessions, pair.other)
        )
        assert counts.related("/jobs/3", 4) == best[:4]


def test_batch_that_runs_again_counts_once_and_another_checkpoint_is_refused(tmp_path: Path) -> None:
    pair = Pair("/jobs/1", "/jobs/2", 3)
    with PairCounts(tmp_path / "related.db", has_writes=True) as counts:
        assert counts.add("query", 0, [pair])
        assert not counts.add("query", 0, [pair])
        assert counts.add("query", 1, [pair])
        with pytest.raises(CountsUnusable, match="another checkpoint"):
            counts.add("other", 0, [pair])
        assert counts.all_pairs() == [pair._replace(sessions=6)]


def test_file_that_is_not_of_the_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "related.db"
    with pytest.raises(CountsUnusable, match="there are no counts"):
        PairCounts(path, has_writes=False)
    path.write_text("some notes of a user, long enough to be no database of SQLite" * 20)
    with pytest.raises(CountsUnusable, match="cannot be used"):
        PairCounts(path, has_writes=True)


def _pairs(path: Path) -> set[Pair]:
    with PairCounts(path, has_writes=False) as counts:
        return set(counts.all_pairs())
