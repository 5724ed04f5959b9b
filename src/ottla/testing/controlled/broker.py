"""A real broker for tests, which a test can kill, pause, slow down, fill up, and make older.

    with ControlledBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        with broker.paused():
            ...

It is a process of its own on a free port of this machine, with a temporary directory, and ends when the test's process
does, however that ends.  It runs the code of `ottla serve` on the machine's own disk and clock until a test changes
them, but for syncs of files: they do nothing, since a test can kill a process and not the machine.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING, Final, Self

from ottla.model.errors import OttlaError
from ottla.runtime.clock import Clock, SystemClock
from ottla.testing.broker import LOG_LINES_SHOWN, RunningBroker
from ottla.testing.controlled.conditions import Conditions, Start

if TYPE_CHECKING:
    from ottla.testing.namespace import Namespace


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class BrokerClock:
    """The time of day that a broker goes by: for retention, and for timestamps under `LogAppendTime`.

        broker.clock.advance(days=8)                                  # records older than seven days are deleted
        broker.clock.freeze(datetime(2026, 1, 1, 12, tzinfo=UTC))     # all new records are of noon
        broker.clock.advance(minutes=5)                               # and now, of five past
        broker.clock.run()                                            # it runs again, from there

    Retention has been applied when a call returns.  Clients have clocks of their own: a record under `CreateTime` has
    the time of its producer.  So has the process that counts records (`audit.enable`): its windows are of the records'
    times, and what it says about lateness and completeness is by the machine's clock.
    """

    def __init__(
        self, clock: Clock, conditions: Callable[[], Conditions], change: Callable[[Conditions], None]
    ) -> None:
        self._clock = clock
        self._conditions = conditions
        self._change = change

    def now(self) -> datetime:
        """The broker's time, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.now_ms())

    def now_ms(self) -> int:
        """The broker's time, in milliseconds since 1970: what records have as their timestamp."""
        conditions = self._conditions()
        stands_at_ms = conditions.wall_stands_at_ms
        return self._clock.now_ms() + conditions.wall_ahead_ms if stands_at_ms is None else stands_at_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        time_outs: bool = False,
    ) -> None:
        """Let so much time pass at once.

        With `time_outs` it passes for time-outs, too.  Then members of consumer groups that had no chance to send a
        heartbeat meanwhile, all of them, are put out of their groups when the time is longer than their session.
        """
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        by_ms = by // _MILLISECOND
        if by_ms <= 0:
            raise ValueError(f"time passes forwards, and {by} is not: freeze(at=...) sets the clock to any moment")
        conditions = self._conditions()
        if conditions.wall_stands_at_ms is not None:
            conditions = replace(conditions, wall_stands_at_ms=conditions.wall_stands_at_ms + by_ms)
        else:
            conditions = replace(conditions, wall_ahead_ms=conditions.wall_ahead_ms + by_ms)
        if time_outs:
            conditions = replace(conditions, timers_ahead_ms=conditions.timers_ahead_ms + by_ms)
        self._change(conditions)

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock at this moment, or now; `advance` moves it.  Time-outs continue.

        `at` needs a time zone, and may be in the past.
        """
        if at is not None and at.tzinfo is None:
            raise ValueError(f"{at} has no time zone: datetime(..., tzinfo=UTC)")
        at_ms = self.now_ms() if at is None else (at - _EPOCH) // _MILLISECOND
        self._change(replace(self._conditions(), wall_stands_at_ms=at_ms))

    def run(self) -> None:
        """Let a frozen clock run from its frozen time."""
        conditions = self._conditions()
        if conditions.wall_stands_at_ms is not None:
            ahead_ms = conditions.wall_stands_at_ms - self._clock.now_ms()
            self._change(replace(conditions, wall_stands_at_ms=None, wall_ahead_ms=ahead_ms))


CHANGED_WITHIN_S: Final = 30.0
# What Kafka's defaults make tests wait for: more members of a group before its first generation (3 s).
SETTINGS: Final[Mapping[str, str]] = {"group.initial.rebalance.delay.ms": "0"}

_COMMAND: Final = ("-m", "ottla.testing.controlled")
_READ_BYTES: Final = 4_096
# Reads until its standard input is closed, which the kernel does when the test process ends.
_RESUME_AT_END: Final = 'read -r _; kill -CONT "$0"'


class BrokerEnded(OttlaError):
    """The broker ended unexpectedly; a note has its last log lines."""

    hint = "the reason is in its log, above"

    def __init__(self, how: str, lines: Sequence[str]) -> None:
        super().__init__(f"the broker {how}, which no test had requested")
        self.add_note("\n".join(lines[-LOG_LINES_SHOWN:]))


class ControlledBroker(RunningBroker):
    """A broker process that a test controls.

    `settings` are the broker's, by Kafka's names; they win over `SETTINGS`.  The environment's do not count.
    `data_dir`: without one it gets a temporary directory, which is removed with it.
    `listen`: a port other than 0 is fixed.  `node_id`: it is one of a cluster's (controlled/cluster.py).

    Changes last over `kill` and `start`, like those of a machine; `restore` undoes all.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | Path | None = None,
        listen: str = "127.0.0.1:0",
        serves_metrics: bool = False,
        insecure_listen: bool = False,
        node_id: int | None = None,
    ) -> None:
        super().__init__(
            data_dir,
            listen=listen,
            settings={**SETTINGS, **(settings or {})},
            # A terminal's Ctrl-C is for the tests: they end in order, and their clients still need it then.
            own_group=True,
            serves_metrics=serves_metrics,
            insecure_listen=insecure_listen,
            node_id=node_id,
        )
        self._conditions = Conditions()
        self._channel: socket.socket | None = None
        self._is_paused = False
        self._guard: PauseGuard | None = None
        self.clock = BrokerClock(SystemClock(), lambda: self._conditions, self._change)

    # Life.

    def launch(self) -> None:
        self._is_paused = False
        super().launch()

    def restart(self) -> Self:
        """Stop it in order and start it again, on the same port and data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        if self._guard is None:
            self._guard = PauseGuard(self.pid)
        super().pause()
        self._is_paused = True

    def resume(self) -> None:
        """Continue after `pause`."""
        super().resume()
        self._is_paused = False
        self._end_guard()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen until the end of the block."""
        self.pause()
        try:
            yield
        finally:
            # The block may have resumed or killed it.
            if self._is_paused:
                self.resume()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Killed (SIGKILL) at the beginning of the block, and started again at its end."""
        self.kill()
        try:
            yield
        finally:
            if not self.is_running:
                self.start()

    # Its disk and its speed.

    def fill_disk(self) -> None:
        """From now on its disk is full: writes that need room fail, as with ENOSPC; reads work.

        That is so for the log's files and the directories of new topics, not for the database of topics' names and
        settings (`tree.sqlite`) and the process that compacts.
        """
        self._change(replace(self._conditions, is_disk_full=True))

    def free_disk(self) -> None:
        """There is room again."""
        self._change(replace(self._conditions, is_disk_full=False))

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Full until the end of the block."""
        self.fill_disk()
        try:
            yield
        finally:
            self.free_disk()

    def slow_down(self, *, answers_ms: int = 0, flushes_ms: int = 0) -> None:
        """From now on it is slow; 0 for both ends it.

        `answers_ms`: it reads a request only so long after it arrived, as over a long line; requests that arrive at one
        connection meanwhile are read together with the first.  `flushes_ms`: each flush to the disk takes so much
        longer; with `flush.policy=ack`, the default, that delays every acknowledgement.
        """
        if answers_ms < 0 or flushes_ms < 0:
            raise ValueError(f"times are not negative: answers_ms={answers_ms}, flushes_ms={flushes_ms}")
        self._change(replace(self._conditions, answers_late_ms=answers_ms, flushes_late_ms=flushes_ms))

    @contextmanager
    def slowed(self, *, answers_ms: int = 0, flushes_ms: int = 0) -> Iterator[None]:
        """Slow until the end of the block."""
        self.slow_down(answers_ms=answers_ms, flushes_ms=flushes_ms)
        try:
            yield
        finally:
            self.slow_down()

    # Between tests.

    @property
    def is_disturbed(self) -> bool:
        """Whether it does not run, or is not as it was: `restore` has work to do."""
        return not self.is_running or self._is_paused or self._conditions != self._undone

    @property
    def _undone(self) -> Conditions:
        # The clock of time-outs never goes back.
        return Conditions(timers_ahead_ms=self._conditions.timers_ahead_ms)

    def restore(self) -> None:
        """Undo all that a test has done: it runs, at full speed, with room on its disk, by the machine's clock.

        Raises `BrokerEnded`, when it runs again, if it had ended unexpectedly.
        """
        ended = None
        if self._process is not None and not self.is_running:
            ended = BrokerEnded(self.ended_how, self.log_lines)
            self.kill()
        if self._is_paused:
            self.resume()
        if self._conditions != self._undone:
            self._change(self._undone)
        if not self.is_running:
            self.start()
        if ended is not None:
            raise ended

    def namespace(self, prefix: str = "test") -> Namespace:
        """Topics that are gone at the end of a block:

        with broker.namespace() as namespace:
            orders = namespace.topic("orders")
        """
        from ottla.testing.namespace import Namespace

        return Namespace(self.bootstrap, prefix)

    # The channel to its process.

    def _spawn(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> Popen[str]:
        self._close_channel()
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(CHANGED_WITHIN_S)
        self._channel.sendall(self._start_of_process.to_line())
        with theirs:
            # Its process ends when it reads the end of the channel, that is when this one closes it or is gone.
            return super()._spawn([*command, str(theirs.fileno())], (*pass_fds, theirs.fileno()))

    @property
    def command_line(self) -> list[str]:
        return [sys.executable, *_COMMAND]

    @property
    def _start_of_process(self) -> Start:
        return Start(
            str(self.data_dir),
            self._temporary is not None,
            self._listens_on[0],
            self._settings,
            "127.0.0.1:0" if self._serves_metrics else None,
            self._insecure_listen,
            self._conditions,
        )

    def _change(self, conditions: Conditions) -> None:
        """They are in force when this returns; if it does not run, they will be with the next start."""
        if self._is_paused:
            raise RuntimeError("a paused broker cannot be changed: resume it first")
        self._conditions = conditions
        if not self.is_running:
            return
        assert self._channel is not None
        try:
            self._channel.sendall(conditions.to_line())
            answer = self._channel.recv(_READ_BYTES)
        except OSError as error:
            raise BrokerEnded(f"does not answer: {error}", self.log_lines) from error
        if not answer:
            raise BrokerEnded(self.ended_how, self.log_lines)

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.end()

    def _reap(self) -> int:
        self._is_paused = False
        self._end_guard()
        self._close_channel()
        return super()._reap()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class PauseGuard:
    """A process that resumes a paused broker when the test process ends, however it ends.

    A paused broker cannot read that its channel is closed; once resumed it reads that, and exits.
    """

    def __init__(self, pid: int) -> None:
        self._process: Final = Popen(
            ["/bin/sh", "-c", _RESUME_AT_END, str(pid)],
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            # A signal to the test's process group must not kill it.
            start_new_session=True,
        )

    def end(self) -> None:
        """Resume the broker, if it still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
