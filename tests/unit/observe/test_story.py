from __future__ import annotations

from ottla.observe.story import Story


def test_story_tells_transitions_in_order_with_their_facts() -> None:
    story = Story("orders-3")
    story.add(1042, "opened", log_end_offset=7)
    story.add(1043, "rolled", base_offset=7)
    assert story.tell() == "orders-3: 1042 ms opened log_end_offset=7 | 1043 ms rolled base_offset=7"


def test_story_keeps_the_last_and_counts_the_forgotten() -> None:
    story = Story("orders-3", transitions_kept=2)
    for at_ms in range(5):
        story.add(at_ms, "rolled")
    assert story.tell() == "orders-3: 3 earlier | 3 ms rolled | 4 ms rolled"


def test_story_escapes_what_it_is_given() -> None:
    story = Story("orders-3")
    story.add(1, "joined", member="x\ny")
    assert story.tell() == 'orders-3: 1 ms joined member="x\\ny"'


def test_empty_story_says_so() -> None:
    assert Story("orders-3").tell() == "orders-3: nothing happened yet"
