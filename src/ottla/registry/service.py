"""One registry: answers from the state, and writes when it is the one that may."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from ottla.observe.events import fields
from ottla.registry.decisions import Decision
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.records import claim_change, encode_key, encode_value
from ottla.registry.state import RegistryState

log = logging.getLogger(__name__)

T = TypeVar("T")

_INSTANCE_BYTES: Final = 8


class Log(Protocol):
    """The topic (topic_log.py)."""

    def read(self, state: RegistryState) -> None: ...

    def append(self, records: Sequence[tuple[bytes, bytes | None]], claim: int | None) -> None: ...


class AnotherWrites(Exception):
    """`url`: who writes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url: Final = url


class Registry:
    """Its calls block, and may come from any thread: one at a time is served.

    Each sees what was acknowledged before, by whichever registry.  Errors: `RegistryError`, or an `OttlaError` of the
    client when the cluster does not answer; then a change may have been made all the same.
    """

    def __init__(self, topic: Log, url: str) -> None:
        self._log = topic
        self._url = url
        self._instance = secrets.token_hex(_INSTANCE_BYTES)
        self._state = RegistryState()
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Be the one that writes, from now on: the registry that was it passes its requests on."""
        with self._lock:
            self._log.read(self._state)
            self._claim()

    def read(self, question: Callable[[RegistryState], T]) -> T:
        with self._lock:
            self._log.read(self._state)
            return question(self._state)

    def read_known(self, question: Callable[[RegistryState], T | None]) -> T | None:
        """From what was read so far: for what never changes.  It waits for nobody who waits for the cluster."""
        with self._state.lock:
            return question(self._state)

    def change(self, decide: Callable[[RegistryState], Decision]) -> Decision:
        """Raises `AnotherWrites` as well; then nothing was changed by this one."""
        with self._lock:
            self._log.read(self._state)
            self._require_claim()
            self._correct()
            decision = decide(self._state)
            if decision.forgets_ids:
                # Before, since a writer may die between the two.
                self._claim()
                self._require_claim()
            if decision.changes:
                self._append([(encode_key(key), encode_value(value)) for key, value in decision.changes])
                self._require_claim()
            return decision

    def _claim(self) -> None:
        key, value = claim_change(self._instance, self._url, self._state.id_max)
        self._append([(encode_key(key), encode_value(value))])
        self._correct()
        claim = self._state.claim
        log.info("registry.claimed", extra=fields(number=None if claim is None else claim.number, url=self._url))

    def _require_claim(self) -> None:
        claim = self._state.claim
        if claim is None or claim.instance != self._instance:
            raise AnotherWrites("" if claim is None else claim.url)

    def _correct(self) -> None:
        """See state.py: what an overtaken writer has written is written over by what counts."""
        overtaken = self._state.overtaken()
        if overtaken:
            log.warning("registry.corrects", extra=fields(count=len(overtaken)))
            self._append(overtaken)

    def _append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        claim = self._state.claim
        mine = claim.number if claim is not None and claim.instance == self._instance else None
        self._log.append(records, mine)
        before = self._state.next_offset
        self._log.read(self._state)
        if self._state.next_offset < before + len(records):
            raise RegistryError(RegistryCode.STORE_ERROR, "what was written cannot be read yet: try again")
