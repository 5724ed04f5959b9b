from __future__ import annotations

import io

from ottla.cli.pipeline.job_progress import LINE_EVERY_S, REWRITE_EVERY_S, JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_terminals_line_is_rewritten_and_its_last_state_stays() -> None:
    stream, clock = Terminal(), Clock()
    with JobProgress(stream, clock) as progress:
        progress.show("1 row")
        progress.show("2 rows")
        clock.now_s += REWRITE_EVERY_S
        progress.show("3 rows")
        progress.show("4 rows")
    assert stream.getvalue() == "\r\x1b[K1 row\r\x1b[K3 rows\r\x1b[K4 rows\n"


def test_elsewhere_a_line_is_written_at_intervals() -> None:
    stream, clock = io.StringIO(), Clock()
    with JobProgress(stream, clock) as progress:
        progress.show("1 row")
        clock.now_s += LINE_EVERY_S
        progress.show("2 rows")
        progress.show("3 rows")
    assert stream.getvalue() == "2 rows\n"


def test_a_line_that_stays_replaces_the_one_that_is_rewritten() -> None:
    stream = Terminal()
    with JobProgress(stream, Clock()) as progress:
        progress.show("1 row")
        progress.say("committed")
    assert stream.getvalue() == "\r\x1b[K1 row\r\x1b[Kcommitted\n"


def test_text_of_a_peer_cannot_move_the_cursor() -> None:
    stream = Terminal()
    with JobProgress(stream, Clock()) as progress:
        progress.show("topic \x1b[2J")
        progress.say("topic \x1b[2J")
    assert "\x1b[2J" not in stream.getvalue()


def test_a_terminals_line_is_never_wider_than_the_terminal() -> None:
    stream = Terminal()
    with JobProgress(stream, Clock()) as progress:
        progress.show("x" * 10_000)
    assert len(stream.getvalue()) < 1_000
