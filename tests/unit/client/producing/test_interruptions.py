"""Ctrl-C at every line of a change of the accumulator, one after the other."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest

from ottla.client.producing.settings import ProducerSettings
from tests.property.property_settings import exhaustive, is_tried
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.producing.sending import Sending

CHANGED: Final = ("accumulator.py", "batch.py")
LINES_MAX: Final = 2_000


class Interruption:
    """Raises KeyboardInterrupt at the `at`-th line that runs in these files."""

    def __init__(self, at: int) -> None:
        self.has_hit = False
        self._left = at

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        is_mending = frame.f_code.co_name == "_mend"
        if is_mending or not frame.f_code.co_filename.endswith(CHANGED):
            return None
        if event == "line" and not self.has_hit:
            self._left -= 1
            if self._left < 0:
                self.has_hit = True
                raise KeyboardInterrupt
        return self.trace


@contextmanager
def interrupted_at(line: int) -> Iterator[Interruption]:
    """The interruption ends the block."""
    interruption = Interruption(line)
    before = sys.gettrace()
    sys.settrace(interruption.trace)
    try:
        yield interruption
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


def send_messages(it: Sending) -> None:
    for number in range(5):
        it.send("t", b"%d" % number)


def send_keyed(it: Sending) -> None:
    for number in range(5):
        it.send("t", b"%d" % number, key=b"%d" % number)


def send_sets(it: Sending) -> None:
    it.send_set("t", [b"a", b"b", b"c", b"d", b"e"])
    it.send_set("t", [b"1", b"2", b"3"], [b"1", b"2", None])


def close_everything(it: Sending) -> None:
    it.send("t", b"a")
    it.accumulator.close_all()


@exhaustive
@pytest.mark.parametrize("count_max", [2, 12])
@pytest.mark.parametrize("change", [send_messages, send_keyed, send_sets, close_everything])
def test_interrupted_change_leaves_a_producer_that_works_and_ends(
    change: Callable[[Sending], None], count_max: int
) -> None:
    for line in filter(is_tried, itertools.count()):
        fake = FakeCluster()
        partitions = fake.add_topic("t", 1, 1)
        it = Sending(fake, ProducerSettings(batch_count_max=count_max, linger_ms=1, buffer_bytes=10_000))
        it.send("t", b"before")
        with interrupted_at(line) as interruption:
            change(it)
        after = it.send("t", b"after")
        it.flush()
        records = [record for partition in partitions for record in fake.partitions[partition].records()]
        stored = [record.value for record in records]
        story = f"interrupted at line {line}: stored {stored}"
        assert after.wait(0).offset >= 0, story
        assert stored.count(b"before") == 1, story
        assert len(stored) == len(set(stored)), story
        assert all(record.key in (None, record.value) for record in records), f"{story}: keys {records}"
        # The whole buffer is there again: this set needs nearly all of it.
        it.send("t", b"v")
        assert it.accumulator.add("t", 0, bytes(9_000), None, (), 1, 9_400) is not None, story
        it.flush()
        if not interruption.has_hit:
            break
        assert line < LINES_MAX
    assert line > 30, "lines of the accumulator ran, each was hit once"
