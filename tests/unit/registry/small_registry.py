"""A registry over a topic in memory, for tests of its parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.net.security_log import SecurityLog
from ottla.broker.security.http_logins import HttpLogins
from ottla.registry.check_process import answer
from ottla.registry.checks import Answer, Answers, Check, Outcome
from ottla.registry.decisions import RegistryDecision, register
from ottla.registry.errors import RegistryError
from ottla.registry.records import claim_change, encode_key, encode_value
from ottla.registry.schema import Reference, Schema, SchemaType, SubjectVersion
from ottla.registry.service import Registry
from ottla.registry.state import RegistryState
from ottla.security.http_access import HttpAccess, HttpHosts
from ottla.testing.fake_clock import FakeClock

Stored = tuple[int, bytes | None, bytes | None, int | None]


def logins(access: HttpAccess | None = None, **checks: Any) -> HttpLogins:
    """Without `access` every client may do everything."""
    clock = FakeClock()
    return HttpLogins("REGISTRY", access or HttpAccess(HttpHosts([], "")), SecurityLog(clock), clock, **checks)


class MemoryLog:
    """The topic: offset, key, value and claim of each record.  Several registries may share it."""

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.end = 0
        # Called once, before the next append: what another registry does meanwhile.
        self.before_append: Callable[[], None] | None = None

    def read(self, state: RegistryState) -> None:
        for offset, key, value, claim in self.records:
            if offset >= state.next_offset:
                state.apply(offset, key, value, claim)
        state.skip_to(self.end)

    def append(self, records: Sequence[tuple[bytes, bytes | None]], claim: int | None) -> None:
        meanwhile, self.before_append = self.before_append, None
        if meanwhile is not None:
            meanwhile()
        for key, value in records:
            self.records.append((self.end, key, value, claim))
            self.end += 1

    def compact(self) -> None:
        """Keep the last record of each key; tombstones go, too."""
        last = {key: offset for offset, key, _, _ in self.records}
        self.records = [each for each in self.records if last[each[1]] == each[0] and each[2] is not None]

    def state(self) -> RegistryState:
        """As a registry that starts now would have it."""
        state = RegistryState()
        self.read(state)
        return state


class DirectAnswers(Answers):
    """Does each check at once."""

    def of(self, checks: Sequence[Check]) -> list[Answer]:
        return [answer(check) for check in checks]


class DirectCheckers:
    """Does checks in the caller's thread, and counts them."""

    def __init__(self) -> None:
        self.done: list[Check] = []
        # Called once, before the next check: what happens meanwhile.
        self.before_check: Callable[[], None] | None = None

    def outcomes(self, checks: Sequence[Check], give_up_ms: int) -> list[Outcome]:
        meanwhile, self.before_check = self.before_check, None
        if meanwhile is not None:
            meanwhile()
        self.done += checks
        return [_outcome(check) for check in checks]


def _outcome(check: Check) -> Outcome:
    try:
        return answer(check)
    except RegistryError as error:
        return error


def registry_over(log: MemoryLog, url: str = "http://here", checkers: DirectCheckers | None = None) -> Registry:
    return Registry(log, url, checkers or DirectCheckers(), FakeClock())


class SmallState:
    """A state that decisions are applied to at once."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.now = RegistryState()

    def take(self, decision: RegistryDecision) -> Any:
        changes = [*decision.changes]
        if decision.forgets_ids:
            changes.insert(0, claim_change("small", "http://small", self.now.id_max))
        self.log.append([(encode_key(key), encode_value(value)) for key, value in changes], None)
        self.log.read(self.now)
        return decision.answer

    def register(self, subject: str, text: str, *, type: SchemaType = SchemaType.AVRO, **more: Any) -> SubjectVersion:
        found: SubjectVersion = self.take(register(self.now, subject, schema(text, type=type, **more), DirectAnswers()))
        return found


def schema(text: str, *, type: SchemaType = SchemaType.AVRO, references: Sequence[Reference] = ()) -> Schema:
    return Schema(type, text, tuple(references))


def record(*fields: dict[str, object] | str, name: str = "R") -> str:
    """The text of a record; a field that is a name alone is a string."""
    given = [{"name": each, "type": "string"} if isinstance(each, str) else each for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": given})


def optional(name: str) -> dict[str, object]:
    return {"name": name, "type": "string", "default": ""}


def everything(state: RegistryState) -> object:
    """What a client can see, to compare states by."""
    subjects = state.subjects(deleted=True)
    return {
        "versions": {subject: state.versions(subject, deleted=True) for subject in subjects},
        "ids": {schema_id: state.schema(schema_id) for schema_id in range(state.id_max + 2)},
        "places": {schema_id: state.places(schema_id, deleted=True) for schema_id in range(state.id_max + 2)},
        "referrers": {
            (subject, each.version): state.referrers(subject, each.version, deleted=True)
            for subject in subjects
            for each in state.versions(subject, deleted=True)
        },
        "configs": {subject: state.config(subject) for subject in (None, *subjects)},
        "modes": {subject: state.mode(subject) for subject in (None, *subjects)},
    }
