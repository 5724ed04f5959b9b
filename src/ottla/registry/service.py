"""One registry: answers from the state, and writes when it is the one that may."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from ottla.observe.events import fields
from ottla.registry.checkers import STARTS_WITHIN_MS
from ottla.registry.checks import Answers, Check, ChecksMissing, Outcome
from ottla.registry.decisions import RegistryDecision
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.records import claim_change, encode_key, encode_value
from ottla.registry.state import RegistryState, WriterClaim
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

_INSTANCE_BYTES: Final = 8


class SchemaLog(Protocol):
    """The topic (topic_log.py).  One thread at a time reads, and one appends."""

    def read(self, state: RegistryState) -> None: ...

    def append(self, records: Sequence[tuple[bytes, bytes | None]], claim: int | None) -> None: ...


class SchemaChecks(Protocol):
    """Does checks (checkers.py)."""

    def outcomes(self, checks: Sequence[Check], give_up_ms: int) -> list[Outcome]: ...


class AnotherWrites(Exception):
    """`url`: of the writer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url: Final = url


class Registry:
    """Its calls block, and may come from any thread.  Reads wait for no change, and nothing waits for a check.

    Each sees everything that was acknowledged before, by any registry.  Errors: `RegistryError`, or an `OttlaError` of
    the client when the cluster does not answer; then a change may have been made all the same.
    """

    def __init__(self, topic: SchemaLog, url: str, checkers: SchemaChecks, clock: Clock) -> None:
        self._log = topic
        self._url = url
        self._checkers = checkers
        self._clock = clock
        self._instance = secrets.token_hex(_INSTANCE_BYTES)
        self._state = RegistryState()
        self._catch_up = SharedRead(lambda: topic.read(self._state))
        # Of changes, from the decision to the append.
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Be the one that writes, from now on: the registry that was it passes its requests on."""
        with self._lock:
            self._catch_up()
            self._claim()

    def answered(self, attempt: Callable[[Answers], T]) -> T:
        """The result of `attempt`, which is made again after each check that it needs was done.

        Raises `RegistryError` when the checks do not start in time: also when the subject changes again and again.
        """
        give_up_ms = self._clock.monotonic_ms() + STARTS_WITHIN_MS
        answers = Answers()
        while True:
            try:
                return attempt(answers)
            except ChecksMissing as missing:
                for check, outcome in zip(
                    missing.checks, self._checkers.outcomes(missing.checks, give_up_ms), strict=True
                ):
                    answers.add(check, outcome)

    def read(self, question: Callable[[RegistryState], T]) -> T:
        self._catch_up()
        with self._state.lock:
            return question(self._state)

    def read_known(self, question: Callable[[RegistryState], T | None]) -> T | None:
        """From the records read so far: for facts that never change.  It does not wait for the cluster."""
        with self._state.lock:
            return question(self._state)

    def change(self, decide: Callable[[RegistryState], RegistryDecision]) -> RegistryDecision:
        """Raises `AnotherWrites` as well; then nothing was changed by this one."""
        with self._lock:
            self._catch_up()
            self._correct()
            with self._state.lock:
                claim = self._own_claim()
                decision = decide(self._state)
            if decision.forgets_ids:
                # Before, since a writer may die between the two.
                self._claim()
                claim = self._required_claim()
            if decision.changes:
                self._append([(encode_key(key), encode_value(value)) for key, value in decision.changes], claim)
                self._required_claim()
            return decision

    def _claim(self) -> None:
        with self._state.lock:
            claim = self._state.claim
            key, value = claim_change(self._instance, self._url, self._state.id_max)
        self._append([(encode_key(key), encode_value(value))], claim if self._is_own(claim) else None)
        self._correct()
        claim = self._state.claim
        log.info("registry.claimed", extra=fields(number=None if claim is None else claim.number, url=self._url))

    def _required_claim(self) -> WriterClaim:
        with self._state.lock:
            return self._own_claim()

    def _own_claim(self) -> WriterClaim:
        """The claim under which this registry writes.

        It is fixed with the decision: a read may find another's claim at any time, and then what is appended under this
        one does not count.
        """
        claim = self._state.claim
        if claim is None or not self._is_own(claim):
            raise AnotherWrites("" if claim is None else claim.url)
        return claim

    def _is_own(self, claim: WriterClaim | None) -> bool:
        return claim is not None and claim.instance == self._instance

    def _correct(self) -> None:
        """See state.py: what an overtaken writer has written is written over by what counts."""
        with self._state.lock:
            overtaken, claim = self._state.overtaken(), self._state.claim
        if overtaken and self._is_own(claim):
            log.warning("registry.corrects", extra=fields(count=len(overtaken)))
            self._append(overtaken, claim)

    def _append(self, records: Sequence[tuple[bytes, bytes | None]], claim: WriterClaim | None) -> None:
        before = self._state.next_offset
        self._log.append(records, None if claim is None else claim.number)
        self._catch_up()
        if self._state.next_offset < before + len(records):
            raise RegistryError(RegistryCode.STORE_ERROR, "the written record cannot be read yet: try again")


class SharedRead:
    """Runs `read`, one run at a time: a call returns when a run that started after it has ended.

    Calls that wait for a run have the next one together, so a slow cluster costs them one run and not one each.
    """

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        # The run that has not started.
        self._next: Future[None] | None = None

    def __call__(self) -> None:
        """Raises what the run raised."""
        with self._lock:
            run, is_first = self._next, self._next is None
            if run is None:
                run = self._next = Future()
        if is_first:
            self._run(run)
        run.result()

    def _run(self, run: Future[None]) -> None:
        with self._turn:
            with self._lock:
                self._next = None
            try:
                self._read()
            except BaseException as error:
                run.set_exception(error)
                raise
            run.set_result(None)
