"""What the supervisor of broker processes does when one is ready, ends or must stop.  Pure: events and time in, effects
out.

A process that ends is started again: at once, then after growing delays.  One that ends before it was ready for the
first time ends all, since a wrong setting or a damaged directory does not pass; the others are stopped in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.model.identifiers import NodeId
from ottla.runtime.restart_delays import RestartDelays

RESTART_DELAYS_MS: Final = (0, 500, 1_000, 2_000, 5_000)
STEADY_AFTER_MS: Final = 10_000
# Connections drain for some seconds, and logs are flushed; what takes longer than this is stuck.
STOP_WITHIN_MS: Final = 60_000
FAILED: Final = 1


class Start(NamedTuple):
    """Start the broker's process."""

    node_id: NodeId


class Terminate(NamedTuple):
    """Let it stop in order."""

    node_id: NodeId


class Reload(NamedTuple):
    """Let it load its certificates again."""

    node_id: NodeId


class Kill(NamedTuple):
    """It did not stop in time."""

    node_id: NodeId


class ReportReady(NamedTuple):
    """All brokers serve, for the first time."""


class ReportDelay(NamedTuple):
    """The process is started again after this time."""

    node_id: NodeId
    delay_ms: int


class ReportNotStarted(NamedTuple):
    """It ended before it was ready for the first time: all processes stop."""

    node_id: NodeId


class Finish(NamedTuple):
    """No process is left."""

    status: int


Effect = Start | Terminate | Reload | Kill | ReportReady | ReportDelay | ReportNotStarted | Finish


class _Phase(Enum):
    STARTING = auto()
    SERVING = auto()
    # Until its next start.
    WAITING = auto()
    STOPPING = auto()
    ENDED = auto()


class _Process:
    def __init__(self) -> None:
        self.phase = _Phase.ENDED
        self.delays: Final = RestartDelays(RESTART_DELAYS_MS, STEADY_AFTER_MS)
        self.started_ms = 0
        # Of the next start, or of the moment at which it is killed.
        self.due_ms: int | None = None
        # Since this supervisor started.
        self.has_served = False
        # While it starts it may have read the former certificates, and the signal would end it.
        self.reloads_when_ready = False


class ProcessKeeping:
    """The processes of the brokers `node_ids`.  Each call returns what to do, in order.

    `serving`: those whose processes a former supervisor started and found ready, and that still run.
    """

    def __init__(self, node_ids: Iterable[NodeId], serving: Collection[NodeId] = ()) -> None:
        self._processes: Final = {node_id: _Process() for node_id in node_ids}
        for node_id in serving:
            process = self._processes[node_id]
            process.phase, process.has_served = _Phase.SERVING, True
        self._is_reported = False
        self._status: int | None = None

    @property
    def is_stopping(self) -> bool:
        return self._status is not None

    @property
    def next_due_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return min((each.due_ms for each in self._processes.values() if each.due_ms is not None), default=None)

    def start(self, now_ms: int) -> list[Effect]:
        """Start all that do not run."""
        effects: list[Effect] = []
        for node_id, process in self._processes.items():
            if process.phase is _Phase.ENDED:
                effects.append(self._start(node_id, process, now_ms))
        return [*effects, *self._ready()]

    def on_ready(self, node_id: NodeId) -> list[Effect]:
        """The broker serves."""
        process = self._processes[node_id]
        if process.phase is not _Phase.STARTING:
            return []
        process.phase, process.has_served = _Phase.SERVING, True
        if process.reloads_when_ready:
            process.reloads_when_ready = False
            return [Reload(node_id), *self._ready()]
        return self._ready()

    def on_ended(self, node_id: NodeId, now_ms: int) -> list[Effect]:
        """Its process is gone."""
        process = self._processes[node_id]
        if self.is_stopping:
            process.phase, process.due_ms = _Phase.ENDED, None
            return self._finished()
        if not process.has_served:
            process.phase = _Phase.ENDED
            return [ReportNotStarted(node_id), *self.stop(now_ms, FAILED)]
        delay_ms = process.delays.after(now_ms - process.started_ms)
        if not delay_ms:
            return [self._start(node_id, process, now_ms)]
        process.phase, process.due_ms = _Phase.WAITING, now_ms + delay_ms
        return [ReportDelay(node_id, delay_ms)]

    def on_time(self, now_ms: int) -> list[Effect]:
        """Start and kill what is due by now."""
        effects: list[Effect] = []
        for node_id, process in self._processes.items():
            if process.due_ms is None or now_ms < process.due_ms:
                continue
            if process.phase is _Phase.WAITING:
                effects.append(self._start(node_id, process, now_ms))
            else:
                process.due_ms = None
                effects.append(Kill(node_id))
        return effects

    def reload(self) -> list[Effect]:
        """Certificates have changed: those that start follow when they are ready."""
        for process in self._processes.values():
            process.reloads_when_ready = process.phase is _Phase.STARTING
        return [Reload(node_id) for node_id, each in self._processes.items() if each.phase is _Phase.SERVING]

    def stop(self, now_ms: int, status: int = 0) -> list[Effect]:
        """Stop all processes at once.  A second call changes nothing."""
        if self.is_stopping:
            return []
        self._status = status
        effects: list[Effect] = []
        for node_id, process in self._processes.items():
            if process.phase in (_Phase.STARTING, _Phase.SERVING):
                process.phase, process.due_ms = _Phase.STOPPING, now_ms + STOP_WITHIN_MS
                effects.append(Terminate(node_id))
            else:
                process.phase, process.due_ms = _Phase.ENDED, None
        return effects or self._finished()

    def _start(self, node_id: NodeId, process: _Process, now_ms: int) -> Start:
        process.phase, process.started_ms, process.due_ms = _Phase.STARTING, now_ms, None
        process.reloads_when_ready = False
        return Start(node_id)

    def _ready(self) -> list[Effect]:
        if self._is_reported or not all(each.has_served for each in self._processes.values()):
            return []
        self._is_reported = True
        return [ReportReady()]

    def _finished(self) -> list[Effect]:
        assert self._status is not None
        if any(each.phase is not _Phase.ENDED for each in self._processes.values()):
            return []
        return [Finish(self._status)]
