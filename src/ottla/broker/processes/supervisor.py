"""The supervisor's process: it holds the tree, and starts, watches and stops the brokers' processes.

Brokers do not end with it: they serve until their leases end, and the next supervisor finds them in its record.  Each
waits at its standard input until it is recorded; after that it has no pipe of the supervisor.  They write to the same
log, and report that they serve as to a service manager: a datagram to $NOTIFY_SOCKET.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from ottla.broker.processes.keeping import (
    Effect,
    Finish,
    Kill,
    ProcessKeeping,
    Reload,
    ReportDelay,
    ReportNotStarted,
    ReportReady,
    Start,
    Terminate,
)
from ottla.broker.processes.recorded import (
    BrokerProcess,
    descriptor_of,
    has_ended,
    read_running,
    start_ticks_of,
    write_running,
)
from ottla.broker.tree.holder import SESSIONS_FILE, HeldTree, is_before
from ottla.coordination.local import SOCKET_FILE
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId
from ottla.observe.events import fields
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.disk import Disk
from ottla.runtime.posix_disk import PosixDisk
from ottla.runtime.process import READY, STOPPING, has_terminal, notify
from ottla.runtime.start_line import START_LINE
from ottla.storage.directory import directory_tree
from ottla.storage.directory.process_places import folder_of

log = logging.getLogger(__name__)

# Of brokers that a former supervisor left, and that must not be adopted.
LEFT_STOP_WITHIN_MS: Final = 60_000
LEFT_REPORT_AFTER_MS: Final = 5_000
_NOTICE_BYTES_MAX: Final = 4_096
# The pid, uid and gid of the sender of a notice.
_CREDENTIALS: Final = struct.Struct("3i")
# Of the supervisor's own service manager.
_NOT_INHERITED: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"})


class _Watched:
    """A process that runs.  `child` is None for one that a former supervisor started."""

    def __init__(self, process: BrokerProcess, descriptor: int, child: subprocess.Popen[bytes] | None) -> None:
        self.process = process
        self.descriptor: Final = descriptor
        self._child: Final = child

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)

    def ended_how(self) -> str:
        """After its end."""
        os.close(self.descriptor)
        if self._child is None:
            return "ended"
        status = self._child.wait()
        return f"status {status}" if status >= 0 else signal.Signals(-status).name


class _Notices:
    """The sockets at which brokers report that they serve."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[NodeId], None]) -> None:
        self._loop = loop
        self._on_ready = on_ready
        self._sockets: dict[NodeId, socket.socket] = {}

    def address_of(self, node_id: NodeId) -> str:
        """For $NOTIFY_SOCKET of a new process.  Raises `OSError`."""
        self._close(node_id)
        # An abstract address: it has no path that could be too long, and ends with the socket.
        name = f"ottla-{os.getpid()}-{node_id}-{secrets.token_hex(8)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            listening.setblocking(False)
            # Any user may send to an abstract address.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            listening.bind(f"\0{name}")
        except OSError:
            listening.close()
            raise
        self._sockets[node_id] = listening
        self._loop.add_reader(listening.fileno(), self._on_notice, node_id)
        return f"@{name}"

    def close(self) -> None:
        for node_id in list(self._sockets):
            self._close(node_id)

    def _on_notice(self, node_id: NodeId) -> None:
        with contextlib.suppress(BlockingIOError):
            if _is_own_ready(self._sockets[node_id]):
                self._on_ready(node_id)

    def _close(self, node_id: NodeId) -> None:
        listening = self._sockets.pop(node_id, None)
        if listening is not None:
            self._loop.remove_reader(listening.fileno())
            listening.close()


def _is_own_ready(listening: socket.socket) -> bool:
    """Whether the next datagram is READY of a process of this user.  Raises `BlockingIOError`."""
    content, extras, _, _ = listening.recvmsg(_NOTICE_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
    uids = [
        _CREDENTIALS.unpack(data)[1]
        for level, kind, data in extras
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size
    ]
    return uids == [os.geteuid()] and READY.encode() in content.splitlines()


class BrokerProcesses:
    """The shell of `ProcessKeeping`.  `finished` has the exit status when no process is left."""

    def __init__(
        self,
        commands: Mapping[NodeId, Sequence[str]],
        left: Sequence[BrokerProcess],
        folder: str,
        disk: Disk,
        clock: Clock,
        on_ready: Callable[[], None],
        fingerprint: str = "",
    ) -> None:
        """`left`: those that a former supervisor left serving, and that this one watches.  Raises `OSError`."""
        self._commands: Final = {node_id: tuple(command) for node_id, command in commands.items()}
        self._fingerprint: Final = fingerprint
        self._folder: Final = folder
        self._disk: Final = disk
        self._clock: Final = clock
        self._on_ready: Final = on_ready
        self._loop: Final = asyncio.get_running_loop()
        self._notices: Final = _Notices(self._loop, self._on_broker_ready)
        self._watched: Final[dict[NodeId, _Watched]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.finished: Final[asyncio.Future[int]] = self._loop.create_future()
        for process in left:
            descriptor = descriptor_of(process)
            if descriptor is not None:
                log.info("process.adopted", extra=fields(broker=process.node_id, pid=process.pid))
                self._watch(_Watched(process, descriptor, None))
        self._keeping: Final = ProcessKeeping(self._commands, list(self._watched))

    def start(self) -> None:
        self._apply(self._keeping.start(self._clock.monotonic_ms()))

    def stop(self, status: int = 0) -> None:
        """Let all brokers stop at once; `finished` follows."""
        self._apply(self._keeping.stop(self._clock.monotonic_ms(), status))

    def reload_certificates(self) -> None:
        self._apply(self._keeping.reload())

    def close(self) -> None:
        """Watch them no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._notices.close()
        for each in self._watched.values():
            self._loop.remove_reader(each.descriptor)
            os.close(each.descriptor)
        self._watched.clear()

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(node_id):
                    self._start(node_id)
                case Terminate(node_id):
                    self._send(node_id, signal.SIGTERM)
                case Reload(node_id):
                    self._send(node_id, signal.SIGHUP)
                case Kill(node_id):
                    log.warning("process.killed", extra=fields(broker=node_id, hint="it did not stop in time"))
                    self._send(node_id, signal.SIGKILL)
                case ReportReady():
                    self._on_ready()
                case ReportDelay(node_id, delay_ms):
                    log.warning("process.waits", extra=fields(broker=node_id, delay_ms=delay_ms))
                case ReportNotStarted(node_id):
                    log.error("process.not_started", extra=fields(broker=node_id, hint="its error is above"))
                case Finish(status):
                    self.finished.set_result(status)
        self._set_timer()

    def _send(self, node_id: NodeId, number: signal.Signals) -> None:
        # One that could not be started has none, and its end follows.
        if node_id in self._watched:
            self._watched[node_id].send(number)

    def _start(self, node_id: NodeId) -> None:
        environment = {name: text for name, text in os.environ.items() if name not in _NOT_INHERITED}
        command = self._commands[node_id]
        try:
            environment["NOTIFY_SOCKET"] = self._notices.address_of(node_id)
            child, descriptor = _spawned(command, environment)
        except OSError as error:
            # No descriptors, processes or memory left: the machine may have them again.
            log.warning("process.failed", extra=fields(broker=node_id, error=str(error)))
            self._loop.call_soon(self._apply_end, node_id)
            return
        log.info("process.started", extra=fields(broker=node_id, pid=child.pid))
        # It is not reaped yet, so its id is its own.
        process = BrokerProcess(node_id, child.pid, start_ticks_of(child.pid) or 0, command, self._fingerprint)
        self._watch(_Watched(process, descriptor, child))
        self._record(node_id)
        _let_start(child)

    def _on_broker_ready(self, node_id: NodeId) -> None:
        watched = self._watched.get(node_id)
        if watched is not None and not watched.process.is_ready:
            watched.process = watched.process._replace(is_ready=True)
            self._record(node_id)
        self._apply(self._keeping.on_ready(node_id))

    def _record(self, node_id: NodeId) -> None:
        try:
            write_running(self._disk, self._folder, [each.process for each in self._watched.values()])
        except OSError as error:
            # Without the record the next supervisor refuses the directory as long as the broker has it.
            log.warning("process.not_recorded", extra=fields(broker=node_id, error=str(error)))

    def _watch(self, watched: _Watched) -> None:
        self._watched[watched.process.node_id] = watched
        self._loop.add_reader(watched.descriptor, self._on_end, watched.process.node_id)

    def _on_end(self, node_id: NodeId) -> None:
        watched = self._watched.pop(node_id)
        self._loop.remove_reader(watched.descriptor)
        level = logging.INFO if self._keeping.is_stopping else logging.WARNING
        facts = fields(broker=node_id, pid=watched.process.pid, how=watched.ended_how())
        log.log(level, "process.ended", extra=facts)
        self._apply_end(node_id)

    def _apply_end(self, node_id: NodeId) -> None:
        self._apply(self._keeping.on_ended(node_id, self._clock.monotonic_ms()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._keeping.next_due_ms
        if due_ms is None:
            self._timer = None
            return
        delay_ms = max(0, due_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._apply(self._keeping.on_time(self._clock.monotonic_ms()))


def _spawned(command: Sequence[str], environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """A process that waits for `_let_start`, and a descriptor of it.  Raises `OSError`; then there is none."""
    # A separate session: a terminal's Ctrl-C is for the supervisor, and its end does not end the brokers.
    child = subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        return child, os.pidfd_open(child.pid)
    except OSError:
        child.kill()
        child.communicate()
        raise


def _let_start(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    # It may have ended already.
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(START_LINE)


class BrokerDidNotStop(OttlaError):
    """A broker of a former supervisor has the directory and does not end."""

    hint = "end the process yourself (kill -9), and start again"


def stop_left(
    data_dir: str,
    is_wanted: Callable[[BrokerProcess], bool] = lambda _: False,
    clock: Clock = SystemClock(),  # noqa: B008 (it has no state)
) -> list[BrokerProcess]:
    """Stop the brokers that a former supervisor left, but those that are wanted; returns these.

    The caller has the supervisor's lock.  Raises `BrokerDidNotStop`, `OSError`.
    """
    wanted: list[BrokerProcess] = []
    stopping: list[tuple[BrokerProcess, int]] = []
    try:
        for process in read_running(PosixDisk(), folder_of(data_dir)):
            descriptor = descriptor_of(process)
            if descriptor is None:
                continue
            if is_wanted(process):
                os.close(descriptor)
                wanted.append(process)
                continue
            log.warning("process.left", extra=fields(broker=process.node_id, pid=process.pid, does="stops"))
            stopping.append((process, descriptor))
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        deadline_ms = clock.monotonic_ms() + LEFT_STOP_WITHIN_MS
        for process, descriptor in stopping:
            _await_end(process, descriptor, deadline_ms, clock)
    finally:
        for _, descriptor in stopping:
            os.close(descriptor)
    return wanted


def _await_end(process: BrokerProcess, descriptor: int, deadline_ms: int, clock: Clock) -> None:
    """Raises `BrokerDidNotStop`."""
    facts = {"broker": process.node_id, "pid": process.pid}
    remaining_ms = deadline_ms - clock.monotonic_ms()
    while not has_ended(descriptor, max(0, min(LEFT_REPORT_AFTER_MS, remaining_ms)) / 1_000):
        remaining_ms = deadline_ms - clock.monotonic_ms()
        if remaining_ms <= 0:
            raise BrokerDidNotStop(f"broker {process.node_id}, process {process.pid}, does not stop")
        log.warning("process.left", extra=fields(**facts, does="stops", remaining_ms=remaining_ms))
    log.info("process.ended", extra=fields(**facts, how="stopped"))


async def supervise(
    data_dir: str,
    commands: Mapping[NodeId, Sequence[str]],
    left: Sequence[BrokerProcess],
    bootstrap: str,
    *,
    fingerprint: str,
    reloads_certificates: bool,
) -> int:
    """Run the brokers until SIGTERM, SIGINT or SIGHUP, or until they cannot run; returns the exit status.

    The caller has the supervisor's lock, and `left` are the processes of its brokers that run already.
    Raises `OttlaError`.
    """
    clock, disk, folder = SystemClock(), PosixDisk(), Path(folder_of(data_dir))
    started_ms = clock.monotonic_ms()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as closing:
        tree = await closing.enter_async_context(
            HeldTree.open(
                Path(data_dir) / directory_tree.TREE_FILE,
                folder / SOCKET_FILE,
                folder / SESSIONS_FILE,
                may_be_new=directory_tree.may_have_new_tree(disk, data_dir),
            )
        )

        def report_ready() -> None:
            took_ms = clock.monotonic_ms() - started_ms
            facts = fields(bootstrap=bootstrap, brokers_count=len(commands), data_dir=data_dir, took_ms=took_ms)
            log.info("processes.ready", extra=facts)
            notify(READY)

        processes = BrokerProcesses(commands, left, str(folder), disk, clock, report_ready, fingerprint)
        closing.callback(processes.close)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stopped.set)
        if reloads_certificates and not has_terminal():
            loop.add_signal_handler(signal.SIGHUP, processes.reload_certificates)
        if await is_before(stopped, tree.serve()):
            processes.start()
        watches = [
            loop.create_task(_after(stopped, processes.stop)),
            loop.create_task(_after(tree.failed, lambda: _on_tree_failed(data_dir, processes))),
        ]
        try:
            return await processes.finished
        finally:
            for each in watches:
                each.cancel()
            await asyncio.gather(*watches, return_exceptions=True)


async def _after(event: asyncio.Event, call: Callable[[], None]) -> None:
    await event.wait()
    log.info("processes.stopping")
    notify(STOPPING)
    call()


def _on_tree_failed(data_dir: str, processes: BrokerProcesses) -> None:
    log.error("tree.failed", extra=fields(directory=data_dir, hint="look at its disk, and start again"))
    processes.stop(1)
