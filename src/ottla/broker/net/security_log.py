"""What matters to security: refusals, and changes by administrators.  Each is an event of the broker's log and, with a
file, a JSON line in it.

A refusal that repeats is reported once in a minute with the count of its repeats, and of many kinds at once a bounded
number: a client cannot fill the disk by what it is not allowed to do.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from ottla.broker.net.access import Denial
from ottla.model.errors import ConfigError
from ottla.model.security_settings import SECURITY_LOG_FILE
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields, frequent
from ottla.protocol.api import ApiKey
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

REPEATED_AFTER_MS: Final = 60_000
# Refusals that are counted apart; of others one is reported each second.
KINDS_MAX: Final = 1_000
# Of one event; a request may name a hundred thousand.
RESOURCES_MAX: Final = 20
TEXT_LENGTH_MAX: Final = 256


class Change(NamedTuple):
    """A request that changes the cluster: `outcomes` has its first resources with their error codes, 0 for none."""

    principal: str
    host: str
    listener: str
    client_id: str | None
    api: ApiKey
    outcomes: Sequence[tuple[str, int]]


class FailedLogin(NamedTuple):
    """`user` is what a client of HTTP claimed; empty with a token."""

    user: str
    host: str
    listener: str
    method: str
    reason: str


class HttpDenial(NamedTuple):
    """A request over HTTP that was refused for want of a role."""

    principal: str
    host: str
    listener: str
    method: str
    path: str
    role: str


class HttpChange(NamedTuple):
    """A request over HTTP that changes something; `status` is that of its response."""

    principal: str
    host: str
    listener: str
    method: str
    path: str
    status: int


Refused: TypeAlias = Denial | HttpDenial | FailedLogin


class SecurityLog:
    """Both kinds of reports, and the file.  `write` takes one line without its end; None: there is no file."""

    def __init__(self, clock: Clock, write: Callable[[str], None] | None = None) -> None:
        self._clock: Final = clock
        self._write: Final = write
        # When each was reported last, and its repeats since.
        self._reported: dict[Refused, tuple[int, int]] = {}
        self._others_reported_ms: int | None = None
        self._others_count = 0

    def denied(self, denial: Denial | HttpDenial) -> None:
        self._refused(denial)

    def login_failed(self, login: FailedLogin) -> None:
        self._refused(login)

    def _refused(self, refused: Refused) -> None:
        now_ms = self._clock.monotonic_ms()
        known = self._reported.get(refused)
        if known is not None and now_ms - known[0] < REPEATED_AFTER_MS:
            self._reported[refused] = known[0], known[1] + 1
            return
        if known is None and len(self._reported) >= KINDS_MAX:
            self._forget_old(now_ms)
            if len(self._reported) >= KINDS_MAX:
                self._note_other(refused, now_ms)
                return
        self._reported[refused] = now_ms, 0
        self._report(refused, 0 if known is None else known[1])

    def changed(self, change: Change) -> None:
        outcomes = [f"{name}={code}" if code else name for name, code in change.outcomes[:RESOURCES_MAX]]
        facts: dict[str, object] = {
            "principal": change.principal,
            "peer": change.host,
            "listener": change.listener,
            "client_id": change.client_id,
            "api": change.api.name,
            "resources": outcomes,
        }
        if len(change.outcomes) > RESOURCES_MAX:
            facts["has_more"] = True
        log.info("cluster.changed", extra=fields(**{**facts, "resources": ",".join(outcomes)}))
        self._write_line("changed", facts)

    def http_changed(self, change: HttpChange) -> None:
        facts: dict[str, object] = {
            "principal": change.principal,
            "peer": change.host,
            "listener": change.listener,
            "method": change.method,
            "path": change.path,
            "status": change.status,
        }
        log.info("registry.changed", extra=fields(**facts))
        self._write_line("changed", facts)

    def _note_other(self, refused: Refused, now_ms: int) -> None:
        if self._others_reported_ms is not None and now_ms - self._others_reported_ms < 1_000:
            self._others_count += 1
            return
        self._others_reported_ms = now_ms
        others_count, self._others_count = self._others_count, 0
        self._report(refused, others_count)

    def _report(self, refused: Refused, repeats_count: int) -> None:
        facts = _facts(refused)
        if repeats_count:
            facts["repeats_count"] = repeats_count
        if isinstance(refused, FailedLogin):
            log.warning("login.failed", extra=frequent(**facts))
            self._write_line("login_failed", facts)
            return
        log.warning("request.denied", extra=frequent(**facts))
        self._write_line("denied", facts)

    def _write_line(self, event: str, facts: Mapping[str, object]) -> None:
        if self._write is None:
            return
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        cut = {name: fact[:TEXT_LENGTH_MAX] if isinstance(fact, str) else fact for name, fact in facts.items()}
        # Escaped by JSON, so what a peer sends stays within its line.
        self._write(json.dumps({"time": moment.replace("+00:00", "Z"), "event": event, **cut}))

    def _forget_old(self, now_ms: int) -> None:
        self._reported = {
            refused: known for refused, known in self._reported.items() if now_ms - known[0] < REPEATED_AFTER_MS
        }


def _facts(refused: Refused) -> dict[str, object]:
    if isinstance(refused, FailedLogin):
        return {
            "user": refused.user,
            "peer": refused.host,
            "listener": refused.listener,
            "mechanism": refused.method,
            "error": refused.reason,
        }
    if isinstance(refused, HttpDenial):
        return {
            "principal": refused.principal,
            "peer": refused.host,
            "listener": refused.listener,
            "method": refused.method,
            "path": refused.path,
            "role": refused.role,
        }
    return {
        "principal": refused.principal,
        "peer": refused.host,
        "listener": refused.listener,
        "client_id": refused.client_id,
        "api": refused.api.name,
        "operation": refused.operation.name,
        "resource": f"{refused.resource_type.name}:{refused.resource}",
        "rule": refused.rule,
    }


def open_security_log(settings: BrokerSettings, clock: Clock, closing: ExitStack | AsyncExitStack) -> SecurityLog:
    """With the file of the settings, which `closing` closes.  Raises `ConfigError` when it cannot be written."""
    path = settings[SECURITY_LOG_FILE]
    if path is None:
        return SecurityLog(clock)
    file = LineFile(path)
    closing.callback(file.close)
    return SecurityLog(clock, file.write)


class LineFile:
    """Appends lines to a file that only its owner can read; a file that was moved away is created again."""

    def __init__(self, path: str) -> None:
        """Raises `ConfigError` when it cannot be written, or others can read it."""
        self._path: Final = path
        try:
            self._fd = self._open()
        except OSError as error:
            raise ConfigError(
                f"security.log.file {path}: {error.strerror}", hint="name a file in a directory of the broker's user"
            ) from error
        mode = os.fstat(self._fd).st_mode & 0o777
        if mode & 0o077:
            os.close(self._fd)
            raise ConfigError(f"security.log.file {path} has mode {mode:o}", hint=f"chmod 600 {path}")

    def write(self, line: str) -> None:
        try:
            self._follow_rotation()
            os.write(self._fd, line.encode() + b"\n")
        except OSError as error:
            # The event is in the broker's log as well.
            log.error("security_log.not_written", extra=frequent(path=self._path, error=str(error)))

    def close(self) -> None:
        os.close(self._fd)

    def _follow_rotation(self) -> None:
        own = os.fstat(self._fd)
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            fd, self._fd = self._fd, self._open()
            os.close(fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
