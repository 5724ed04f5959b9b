"""The process of a controlled broker: `python -m ottla.testing.controlled FD`.

It runs what `ottla serve` runs, over a clock, a disk and sockets that the test at the other end of FD can change.
Settings come from the test alone: neither the environment nor a file of the machine changes what it tests.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from typing_extensions import Buffer

from ottla.broker.broker import Broker
from ottla.broker.net.socket_loop import SocketLoop
from ottla.broker.server import serve
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.listener import DEFAULT_LISTENER_NAME, parse_address, parse_flag
from ottla.model.serve_options import ServeOptions, serve_options
from ottla.model.setting_sources import RawSetting, resolve
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields, start_logging
from ottla.observe.text import safe_line
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk, PosixFile
from ottla.testing.controlled.conditions import IN_FORCE, Conditions, Start


class LimitedDisk(PosixDisk):
    """Full means that no file grows and none is created; existing bytes can be read, overwritten and removed.

    Nothing is synced: a test ends processes, which leave the page cache as it is, and waits for no disk.
    """

    def __init__(self, conditions: Conditions) -> None:
        super().__init__()
        self.conditions = conditions

    @property
    def is_synced(self) -> bool:
        return False

    def require_room(self, path: str) -> None:
        if self.conditions.is_disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> LimitedFile:
        if create and not self.exists(path):
            self.require_room(path)
        return LimitedFile(self._open_fd(path, create=create, read_only=read_only), path, self)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self.require_room(path)
        super().make_directory(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self.conditions.is_disk_full else super().free_bytes(path)

    def sync(self, call: Callable[[int], None], fd: int) -> None:
        if self.conditions.flushes_late_ms:
            time.sleep(self.conditions.flushes_late_ms / 1000)


class LimitedFile(PosixFile):
    __slots__ = ("_room",)

    def __init__(self, fd: int, path: str, disk: LimitedDisk) -> None:
        super().__init__(fd, path, disk)
        self._room = disk

    def write_at(self, position: int, data: Buffer) -> int:
        if self._room.conditions.is_disk_full and position + memoryview(data).nbytes > self.size_bytes():
            self._room.require_room(self.path)
        return super().write_at(position, data)

    def truncate(self, length_bytes: int) -> None:
        if self._room.conditions.is_disk_full and length_bytes > self.size_bytes():
            self._room.require_room(self.path)
        super().truncate(length_bytes)

    def allocate(self, length_bytes: int) -> None:
        if self._room.conditions.is_disk_full and length_bytes > self.size_bytes():
            self._room.require_room(self.path)
        super().allocate(length_bytes)


Callback = Callable[[], object]


class Timer(Protocol):
    def cancel(self) -> None: ...


class TimedLoop(SocketLoop, Protocol):
    """Any asyncio loop is one."""

    def call_later(self, delay: float, callback: Callback, /) -> Timer: ...


class LateSockets:
    """A `SocketLoop` that is as good as `loop` while nothing is late.

    A request that arrives where none waits is read `late_ms` after it; those that arrive in between are read with it.
    """

    def __init__(self, loop: TimedLoop, late_ms: int = 0) -> None:
        self._loop = loop
        self._late_ms = late_ms
        self._readers: dict[int, Callback] = {}
        self._waiting: dict[int, Timer] = {}

    def set_late_ms(self, late_ms: int) -> None:
        """From now on, also for the connections that there are; what waits already is read when it was due."""
        self._late_ms = late_ms
        for fd in self._readers.keys() - self._waiting.keys():
            self._watch(fd)

    def add_reader(self, fd: int, callback: Callback, /) -> None:
        self._readers[fd] = callback
        if fd not in self._waiting:
            self._watch(fd)

    def remove_reader(self, fd: int, /) -> bool:
        waiting = self._waiting.pop(fd, None)
        if waiting is None:
            self._loop.remove_reader(fd)
        else:
            waiting.cancel()
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callback, /) -> None:
        self._loop.add_writer(fd, callback)

    def remove_writer(self, fd: int, /) -> bool:
        return self._loop.remove_writer(fd)

    def call_soon(self, callback: Callback, /) -> None:
        self._loop.call_soon(callback)

    def _watch(self, fd: int) -> None:
        self._loop.add_reader(fd, partial(self._on_readable, fd) if self._late_ms else self._readers[fd])

    def _on_readable(self, fd: int) -> None:
        # It stays readable, and would be reported again and again.
        self._loop.remove_reader(fd)
        self._waiting[fd] = self._loop.call_later(self._late_ms / 1000, partial(self._read, fd))

    def _read(self, fd: int) -> None:
        del self._waiting[fd]
        self._watch(fd)
        # Last: it may close the connection, or read no more for now.
        self._readers[fd]()


log = logging.getLogger(__name__)

_ORIGIN: Final = "the test"
_READ_BYTES: Final = 65_536


class MovedClock(SystemClock):
    """The machine's clocks, moved as far as the test says."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def now_ms(self) -> int:
        stands_at_ms = self.conditions.wall_stands_at_ms
        return super().now_ms() + self.conditions.wall_ahead_ms if stands_at_ms is None else stands_at_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.conditions.timers_ahead_ms

    def boottime_ms(self) -> int:
        return super().boottime_ms() + self.conditions.timers_ahead_ms


class ControlledProcess:
    """A broker's machine, and the channel by which its test changes it."""

    def __init__(self, start: Start, channel: socket.socket) -> None:
        self._channel = channel
        self._received = bytearray()
        self._changing: asyncio.Task[None] | None = None
        self.is_orphan = False
        self.clock = MovedClock(start.conditions)
        self.disk = LimitedDisk(start.conditions)

    async def serve(self, options: ServeOptions) -> None:
        loop = asyncio.get_running_loop()
        sockets = LateSockets(loop, self.clock.conditions.answers_late_ms)

        def on_started(broker: Broker) -> None:
            self._channel.setblocking(False)
            loop.add_reader(self._channel.fileno(), self._on_readable, broker, sockets)

        try:
            await serve(options, clock=self.clock, disk=self.disk, sockets=sockets, on_started=on_started)
        finally:
            if self._changing is not None:
                self._changing.cancel()

    def _on_readable(self, broker: Broker, sockets: LateSockets) -> None:
        try:
            received = self._channel.recv(_READ_BYTES)
        except ConnectionResetError:
            received = b""
        if not received:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self.is_orphan = True
            signal.raise_signal(signal.SIGTERM)
            return
        self._received += received
        line, newline, rest = self._received.partition(b"\n")
        if newline:
            # The test waits for the answer before it sends the next.
            assert not rest, "a second line before the first was answered"
            self._received.clear()
            conditions = Conditions.from_line(bytes(line))
            self._changing = asyncio.get_running_loop().create_task(self._change(conditions, broker, sockets))

    async def _change(self, conditions: Conditions, broker: Broker, sockets: LateSockets) -> None:
        before = self.clock.conditions
        self.clock.conditions = self.disk.conditions = conditions
        sockets.set_late_ms(conditions.answers_late_ms)
        if conditions.is_disk_full != before.is_disk_full:
            broker.on_room_changed()
        if _clock_of(conditions) != _clock_of(before):
            await broker.on_clock_moved()
        log.info("conditions.changed", extra=fields(**_shown(conditions)))
        self._channel.sendall(IN_FORCE)


def _clock_of(conditions: Conditions) -> tuple[object, ...]:
    return conditions.wall_ahead_ms, conditions.wall_stands_at_ms, conditions.timers_ahead_ms


def _shown(conditions: Conditions) -> dict[str, object]:
    return {name: found for name in Conditions.__slots__ if (found := getattr(conditions, name))}


def _options(start: Start) -> ServeOptions:
    admin = start.admin_listen
    return serve_options(
        _settings(start.settings),
        data_dir=start.data_dir,
        listen=(parse_flag(start.listen, name=DEFAULT_LISTENER_NAME),),
        admin_listener=None if admin is None else parse_address(admin, name="ADMIN"),
        insecure_listen=start.insecure_listen,
    )


def _settings(given: Mapping[str, str]) -> BrokerSettings:
    """Raises `ConfigError`, also for an unknown name: a test that sets it expects an effect."""
    settings, notices = resolve([[RawSetting(name, str(text), _ORIGIN) for name, text in given.items()]])
    for notice in notices:
        if notice.event == "setting.unknown":
            nearest = notice.facts.get("nearest")
            hint = "docs/configuration.md lists the settings" if nearest is None else f"did you mean {nearest}?"
            raise ConfigError(f"there is no setting {notice.facts['name']}", hint=hint)
        log.log(logging.WARNING if notice.is_warning else logging.INFO, notice.event, extra=fields(**notice.facts))
    return settings


def _read_start(channel: socket.socket) -> Start | None:
    """None: the test ended before."""
    received = bytearray()
    while not received.endswith(b"\n"):
        piece = channel.recv(_READ_BYTES)
        if not piece:
            return None
        received += piece
    return Start.from_line(bytes(received))


def main() -> int:
    start_logging()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        start = _read_start(channel)
        if start is None:
            return 1
        process = ControlledProcess(start, channel)
        try:
            run(process.serve(_options(start)))
        except OttlaError as error:
            sys.stderr.write(f"error: {safe_line(str(error))}\n")
            if error.hint:
                sys.stderr.write(f"hint: {safe_line(error.hint)}\n")
            return 1
        if process.is_orphan and start.is_temporary:
            shutil.rmtree(start.data_dir, ignore_errors=True)
    return 0
