"""Checks what the jobs have found against what was sent: the same events once more, counted without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import Replay, dead_letter_topic
from ottla.demo.expected import GAP_MS
from ottla.demo.found import Letter, differences, read_found
from ottla.demo.messages import Check, Checked, send_message
from ottla.demo.processes.entry import run_task
from ottla.demo.sent import sent_of

# A line of a narrow terminal has room for so many, when they are text.
VALUE_BYTES_SHOWN: Final = 32


def check(task: Check) -> None:
    found = read_found(Path(task.lake))
    sent = sent_of(task.events_counts, task.seed, task.day_start_ms)
    longest, busiest = found.longest, found.busiest
    send_message(
        Checked(
            problems=list(differences(found, sent)),
            letters=found.letters_by_topic,
            replayable_count=_replayable_count(task.bootstrap, found.letters_by_topic),
            letter=_text(found.letters[0]) if found.letters else "",
            sessions_count=len(found.sessions),
            longest_views=longest.views if longest else 0,
            # From the first view to the last.
            longest_ms=longest.end_ms - GAP_MS - longest.begin_ms if longest else 0,
            windows_count=len({page.window_start_ms for page in found.top_pages}),
            busiest_ms=busiest[0].window_start_ms if busiest else 0,
            busiest_pages=[(page.page, page.views) for page in busiest],
            late_count=len(found.late_views),
        )
    )


def _replayable_count(bootstrap: str, topics: Iterable[str]) -> int:
    """What a replay would put back: the same letters, as the dead-letter topics have them."""
    with Cluster(bootstrap) as cluster:
        return sum(Replay(cluster, dead_letter_topic(topic)).run(is_dry=True).put_back for topic in topics)


def _text(letter: Letter) -> str:
    """Its place, and how it begins."""
    return f"{letter.topic} {letter.partition}:{letter.offset} {letter.value[:VALUE_BYTES_SHOWN]!r}"


if __name__ == "__main__":
    run_task(Check, check)
