"""Processes that check schemas, started when they are needed and kept; one that exceeds its limits is ended.

What a check costs is not known before it is done, so its process has a deadline, and limits of CPU and memory
(check_process.py).  The caller's thread waits; nothing else does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.model.limits import KIB, MIB
from ottla.observe.events import fields
from ottla.registry.checks import Answer, Check, Outcome, check_object, schema_too_large
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

# A long check leaves a process to the others.
PROCESSES_MAX: Final = 2
# Of the clock: on a busy machine a check has less than a whole CPU.
CHECK_WITHIN_MS: Final = 10_000
# No check of a request starts later: so another registry that waits for the answer (http_app.PASS_ON_WITHIN_S) gets it.
STARTS_WITHIN_MS: Final = 5_000
# A process imports libraries first.
READY_WITHIN_MS: Final = 30_000
# The same check would need as much again; but perhaps the machine was busy.
REFUSED_FOR_MS: Final = 60_000
OUTCOMES_KEPT: Final = 1_000
OUTCOME_BYTES_KEPT: Final = 16 * KIB
OUTCOME_BYTES_MAX: Final = 16 * MIB

_COMMAND: Final = (sys.executable, "-m", "ottla.registry.check_process")
_READ_BYTES: Final = 64 * KIB


class CheckEnded(Exception):
    """The process did not answer; it must not be used again."""


class Checkers:
    """Any thread may call it."""

    def __init__(self, clock: Clock, *, check_within_ms: int = CHECK_WITHIN_MS) -> None:
        self._clock = clock
        self._check_within_ms = check_within_ms
        # The process that was used last comes first; None: one that is not started.
        self._free: queue.LifoQueue[CheckProcess | None] = queue.LifoQueue()
        for _ in range(PROCESSES_MAX):
            self._free.put(None)
        self._kept = _KeptOutcomes(clock)

    def outcomes(self, checks: Sequence[Check], give_up_ms: int) -> list[Outcome]:
        """Raises `RegistryError` when a check did not start before `give_up_ms`; those before it are remembered."""
        return [self._outcome(check, give_up_ms) for check in checks]

    def close(self) -> None:
        """End the processes that are free; each of the others ends when its input does."""
        with contextlib.suppress(queue.Empty):
            while True:
                process = self._free.get_nowait()
                if process is not None:
                    process.end()

    def _outcome(self, check: Check, give_up_ms: int) -> Outcome:
        line = json.dumps(check_object(check)).encode() + b"\n"
        digest = hashlib.sha256(line).digest()
        kept = self._kept.find(digest)
        if kept is not None:
            return kept
        process = self._take(give_up_ms)
        try:
            # Another request may have finished the same check in between, or ended.
            kept = self._kept.find(digest)
            if kept is not None:
                return kept
            process, outcome = self._done(process, line, digest)
            return outcome
        finally:
            self._free.put(process)

    def _take(self, give_up_ms: int) -> CheckProcess | None:
        left_ms = give_up_ms - self._clock.monotonic_ms()
        with contextlib.suppress(queue.Empty):
            if left_ms > 0:
                return self._free.get(timeout=left_ms / 1_000)
        raise RegistryError(
            RegistryCode.OPERATION_TIMED_OUT,
            "Operation timed out: the checks of this schema, and of others before it, take long; try again",
        )

    def _done(self, process: CheckProcess | None, line: bytes, digest: bytes) -> tuple[CheckProcess | None, Outcome]:
        """With the process that the next check may use."""
        process = self._started(process)
        try:
            found = process.ask(line, self._check_within_ms)
        except CheckEnded as ended:
            process.end()
            log.warning("check.ended", extra=fields(reason=str(ended), request_bytes=len(line)))
            outcome = schema_too_large(
                f"the schema is too large or too complex: its check was ended ({ended}).  It is refused for "
                f"{REFUSED_FOR_MS // 1_000} s; divide it into smaller schemas, which refer to each other"
            )
            self._kept.add(digest, outcome, len(str(outcome)), REFUSED_FOR_MS)
            return None, outcome
        if found.get("retires"):
            process.end()
            process = None
        if found.get("bug"):
            raise RuntimeError("the check of a schema failed; the log has its trace")
        return process, self._kept_outcome(found, digest)

    def _started(self, process: CheckProcess | None) -> CheckProcess:
        if process is not None and process.is_alive:
            return process
        if process is not None:
            process.end()
        try:
            return CheckProcess(self._clock)
        except (CheckEnded, OSError) as error:
            log.warning("check.not_started", extra=fields(error=str(error)))
            raise RegistryError(
                RegistryCode.OPERATION_TIMED_OUT, f"no process for the check of a schema could be started: {error}"
            ) from None

    def _kept_outcome(self, found: dict[str, Any], digest: bytes) -> Outcome:
        if "code" in found:
            error = RegistryError(RegistryCode(found["code"]), found["message"])
            self._kept.add(digest, error, len(found["message"]), REFUSED_FOR_MS if found.get("is_limit") else None)
            return error
        answer: Answer = found["answer"]
        self._kept.add(digest, answer, len(answer) if isinstance(answer, str) else sum(map(len, answer)), None)
        return answer


class _KeptOutcome(NamedTuple):
    outcome: Outcome
    until_ms: int | None


class _KeptOutcomes:
    """Those used last: producers register the same schema at each start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, _KeptOutcome] = OrderedDict()

    def find(self, digest: bytes) -> Outcome | None:
        with self._lock:
            kept = self._found.get(digest)
            if kept is None:
                return None
            if kept.until_ms is not None and kept.until_ms <= self._clock.monotonic_ms():
                del self._found[digest]
                return None
            self._found.move_to_end(digest)
            return kept.outcome

    def add(self, digest: bytes, outcome: Outcome, size_bytes: int, for_ms: int | None) -> None:
        if size_bytes > OUTCOME_BYTES_KEPT:
            return
        with self._lock:
            self._found[digest] = _KeptOutcome(outcome, None if for_ms is None else self._clock.monotonic_ms() + for_ms)
            if len(self._found) > OUTCOMES_KEPT:
                self._found.popitem(last=False)


class CheckProcess:
    """For one thread at a time.  Raises `CheckEnded` when it cannot be started, `OSError` for lack of descriptors."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A group of its own, so that a compiler that it started ends with it.
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        self._received = bytearray()
        self._is_ended = False
        try:
            self._line(READY_WITHIN_MS)
        except CheckEnded:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: bytes, within_ms: int) -> dict[str, Any]:
        """The outcome of one check.  Raises `CheckEnded`."""
        assert self._process.stdin is not None
        try:
            # It reads whole lines before it does anything, so this does not wait for a check.
            remaining = memoryview(line)
            while remaining:
                remaining = remaining[self._process.stdin.write(remaining) :]
        except BrokenPipeError:
            raise CheckEnded(self._ending()) from None
        found: dict[str, Any] = json.loads(self._line(within_ms))
        return found

    def end(self) -> None:
        """End the process and its children."""
        if self._is_ended:
            return
        self._is_ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _line(self, within_ms: int) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        give_up_ms = self._clock.monotonic_ms() + within_ms
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while (end := self._received.find(b"\n")) < 0:
            left_ms = give_up_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not poll.poll(left_ms):
                raise CheckEnded(f"it took more than {within_ms / 1_000:g} s")
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                raise CheckEnded(self._ending())
            self._received += data
            if len(self._received) > OUTCOME_BYTES_MAX:
                raise CheckEnded(f"its outcome has more than {OUTCOME_BYTES_MAX // MIB} MiB")
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _ending(self) -> str:
        status = self._process.wait()
        if status == -signal.SIGXCPU:
            return "it needed too much CPU"
        return f"it ended with {'signal' if status < 0 else 'status'} {abs(status)}"
