from __future__ import annotations

from pathlib import Path

from ottla.demo.events import SERVICES
from ottla.demo.producing import LEAD_MS_MAX, InStep, prepare_steps


def test_no_service_is_far_ahead_of_the_slowest_until_that_one_has_ended(tmp_path: Path) -> None:
    prepare_steps(tmp_path / "steps")
    for idle in range(2, len(SERVICES)):
        InStep(tmp_path / "steps", idle).ended()
    fast, slow = InStep(tmp_path / "steps", 0), InStep(tmp_path / "steps", 1)
    fast.reached(1_000)
    assert fast.limit_ms == LEAD_MS_MAX, "the other has not started"
    slow.reached(400)
    assert fast.limit_ms == slow.limit_ms == 400 + LEAD_MS_MAX
    slow.ended()
    assert fast.limit_ms == 1_000 + LEAD_MS_MAX
