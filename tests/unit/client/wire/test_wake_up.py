from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

from ottla.client.wire.transport import wait_readable
from ottla.client.wire.wake_up import WakeUp

LINES_MAX: Final = 100


def interrupt_ring(wake_up: WakeUp, line: int) -> bool:
    """Ctrl-C at the `line`-th line of `ring`; False when it has fewer."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_name != "ring":
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        wake_up.ring()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_ring_wakes_once_until_it_is_cleared() -> None:
    wake_up = WakeUp()
    assert wait_readable([wake_up], 0) == []
    wake_up.ring()
    wake_up.ring()
    assert wait_readable([wake_up], 0) == [wake_up]
    wake_up.clear()
    assert wait_readable([wake_up], 0) == []
    wake_up.close()
    wake_up.ring()


def test_ring_after_an_interrupted_one_is_heard() -> None:
    line = 0
    is_hit = True
    while is_hit:
        wake_up = WakeUp()
        is_hit = interrupt_ring(wake_up, line)
        wake_up.ring()
        assert wait_readable([wake_up], 0) == [wake_up], f"interrupted at line {line}"
        wake_up.close()
        line += 1
        assert line < LINES_MAX
    assert line > 2, "it has lines, and each was hit"
