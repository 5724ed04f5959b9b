"""Whether the event loop makes progress, as kazoo's thread sees it.

kazoo's thread keeps a session alive as long as it runs.  A broker whose loop hangs serves nobody: its session has to
end as that of a paused process does, so that others lead.  The loop beats, and without a recent beat the thread sends
nothing and does not connect.
"""

from __future__ import annotations

from ottla.runtime.clock import Clock


class LoopPulse:
    """The loop calls `beat`, any thread reads `has_stopped`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beaten_ms = clock.boottime_ms()

    def beat(self) -> None:
        self._beaten_ms = self._clock.boottime_ms()

    def has_stopped(self, limit_ms: float) -> bool:
        """Whether the last beat is older than this."""
        return self._clock.boottime_ms() - self._beaten_ms > limit_ms
