from __future__ import annotations

import logging

from ottla.observe.events import EventFormatter, MultilineFact, fields
from ottla.observe.transition_history import TransitionHistory


def test_history_lists_transitions_in_order_with_their_facts() -> None:
    history = TransitionHistory("orders-3")
    history.add(1042, "opened", log_end_offset=7)
    history.add(1043, "rolled", base_offset=7)
    assert history.as_fact() == MultilineFact(
        ("orders-3: 1042 ms opened log_end_offset=7", "orders-3: 1043 ms rolled base_offset=7")
    )


def test_story_keeps_the_last_and_counts_the_forgotten() -> None:
    history = TransitionHistory("orders-3", transitions_kept=2)
    for at_ms in range(5):
        history.add(at_ms, "rolled")
    assert history.as_fact().lines == (
        "orders-3: 3 earlier transitions were dropped",
        "orders-3: 3 ms rolled",
        "orders-3: 4 ms rolled",
    )


def test_story_escapes_what_it_is_given() -> None:
    history = TransitionHistory("orders-3")
    history.add(1, "joined", member="x\ny")
    assert history.as_fact().lines == ('orders-3: 1 ms joined member="x\\ny"',)


def test_empty_story_says_so() -> None:
    assert TransitionHistory("orders-3").as_fact().lines == ("orders-3: nothing happened yet",)


def test_story_stands_below_its_event_in_marked_lines() -> None:
    history = TransitionHistory("orders-3")
    history.add(1042, "opened")
    record = logging.makeLogRecord({"msg": "log.offline", **fields(partition="orders-3", history=history.as_fact())})
    event, below = EventFormatter().format(record).splitlines()
    assert event.endswith("log.offline partition=orders-3")
    assert below == "    | orders-3: 1042 ms opened"
