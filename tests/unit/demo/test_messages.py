from __future__ import annotations

from ottla.demo.messages import Failed, Produced, Watched, from_line, to_line
from tests.unit.demo.samples import audited


def test_messages_come_back_from_their_line() -> None:
    assert from_line(to_line(Failed("no disk\nleft"))) == Failed("no disk\nleft")
    assert to_line(Failed("no disk\nleft")).count(b"\n") == 1


def test_counts_and_minutes_come_back_from_their_line() -> None:
    assert from_line(to_line(Produced(3, 3, 10, 20))) == Produced(3, 3, 10, 20)
    assert from_line(to_line(audited())) == audited()
    watched = from_line(to_line(Watched(1, 0, 0, [("09:00", [1], "/feed")], 5)))
    assert isinstance(watched, Watched)
    assert [tuple(row) for row in watched.minutes] == [("09:00", [1], "/feed")]
