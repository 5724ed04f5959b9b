"""Decides what a principal may do, by Kafka's semantics (StandardAuthorizer).

A super user may do everything.  Else a rule that denies wins over all that allow, regardless of how specific each is;
without any rule that matches the principal the answer is no, or, with `allow.everyone.if.no.acl.found`, yes for
resources that no rule of any principal covers.  ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, and ALLOW of
ALTER_CONFIGS implies DESCRIBE_CONFIGS; DENY implies nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from ottla.security.acl import (
    EVERY_PRINCIPAL,
    WILDCARD,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    canonical_host,
)

_DESCRIBING: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
)
_DESCRIBING_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL})
# By the operation that is requested: those whose ALLOW permits it, and those whose DENY forbids it.
_ALLOWING: Final[Mapping[Operation, frozenset[Operation]]] = {
    **{each: frozenset({each, Operation.ALL}) for each in Operation},
    Operation.DESCRIBE: _DESCRIBING,
    Operation.DESCRIBE_CONFIGS: _DESCRIBING_CONFIGS,
}
_DENYING: Final[Mapping[Operation, frozenset[Operation]]] = {
    each: frozenset({each, Operation.ALL}) for each in Operation
}
# Of one principal and address; a client that names ever more topics must not fill the memory.
_DECISIONS_MAX: Final = 10_000


class Decision(NamedTuple):
    """`rule` says what decided, for the audit log."""

    is_allowed: bool
    rule: str


_SUPER_USER: Final = Decision(True, "super user")
_NO_ACL: Final = Decision(True, "no rule covers the resource (allow.everyone.if.no.acl.found)")
_NO_MATCH: Final = Decision(False, "no rule allows it")

_Entries = Mapping[str, Sequence[AccessEntry]]


class AclIndex:
    """All access rules at one moment, so that a decision reads only those of its resource and principal.

    A name's prefixes are looked up by the lengths that prefix rules have, of which there are few even where rules are
    many.
    """

    __slots__ = ("_by_type", "acls_count", "patterns", "version")

    def __init__(self, version: int, patterns: Mapping[ResourcePattern, Sequence[AccessEntry]]) -> None:
        """A higher `version` is newer."""
        self.version: Final = version
        self.patterns: Final = patterns
        self.acls_count: Final = sum(map(len, patterns.values()))
        by_type: dict[ResourceType, _OfType] = {}
        for pattern, entries in patterns.items():
            by_type.setdefault(pattern.resource_type, _OfType()).add(pattern, entries)
        for each in by_type.values():
            each.complete()
        self._by_type: Final = by_type

    def changed(self, changes: Mapping[ResourcePattern, Sequence[AccessEntry]]) -> AclIndex:
        """With these entries in place of those that the patterns have; a pattern without entries is removed."""
        patterns = {**self.patterns, **changes}
        for pattern, entries in changes.items():
            if not entries:
                del patterns[pattern]
        return self if patterns == self.patterns else AclIndex(self.version + 1, patterns)

    def __iter__(self) -> Iterator[Acl]:
        for pattern, entries in self.patterns.items():
            for entry in entries:
                yield Acl(pattern, entry)

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision | None:
        """None: no rule covers the resource, for any principal."""
        of_type = self._by_type.get(resource_type)
        if of_type is None:
            return None
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        is_covered, allowed = False, None
        for pattern, by_principal in of_type.covering(name):
            is_covered = True
            for who in (principal, EVERY_PRINCIPAL):
                for entry in by_principal.get(who, ()):
                    if entry.host != host and entry.host != WILDCARD:
                        continue
                    if entry.permission is Permission.DENY:
                        if entry.operation in denying:
                            return Decision(False, str(Acl(pattern, entry)))
                    elif allowed is None and entry.operation in allowing:
                        allowed = Acl(pattern, entry)
        if allowed is not None:
            return Decision(True, str(allowed))
        return _NO_MATCH if is_covered else None

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of this type with which the principal may do it: a rule allows it, and no
        rule that covers all of that rule's resources denies it.
        """
        of_type = self._by_type.get(resource_type)
        return of_type is not None and of_type.allows_any(principal, host, operation)

    def covers_all(self, resource_type: ResourceType) -> bool:
        """Whether a rule covers every resource of this type."""
        of_type = self._by_type.get(resource_type)
        return of_type is not None and of_type.covers_all


_OfPattern = tuple[ResourcePattern, _Entries]


class _OfType:
    """The rules of one type of resource."""

    __slots__ = ("_lengths", "_literal", "_prefixed", "_wildcard")

    def __init__(self) -> None:
        self._literal: dict[str, _OfPattern] = {}
        self._prefixed: dict[str, _OfPattern] = {}
        self._wildcard: _OfPattern | None = None
        self._lengths: list[int] = []

    @property
    def covers_all(self) -> bool:
        return self._wildcard is not None

    def add(self, pattern: ResourcePattern, entries: Iterable[AccessEntry]) -> None:
        by_principal: dict[str, list[AccessEntry]] = {}
        for entry in entries:
            found = entry._replace(host=canonical_host(entry.host))
            by_principal.setdefault(entry.principal, []).append(found)
        if pattern.pattern_type is PatternType.PREFIXED:
            self._prefixed[pattern.name] = pattern, by_principal
        elif pattern.name == WILDCARD:
            self._wildcard = pattern, by_principal
        else:
            self._literal[pattern.name] = pattern, by_principal

    def complete(self) -> None:
        """All patterns have been added."""
        self._lengths = sorted(set(map(len, self._prefixed)))

    def covering(self, name: str) -> Iterator[_OfPattern]:
        """The patterns that apply to the resource of this name."""
        if self._wildcard is not None:
            yield self._wildcard
        # A resource that is called `*` has the rules of all resources.
        literal = self._literal.get(name)
        if literal is not None:
            yield literal
        for length in self._lengths[: bisect_right(self._lengths, len(name))]:
            prefixed = self._prefixed.get(name[:length])
            if prefixed is not None:
                yield prefixed

    def allows_any(self, principal: str, host: str, operation: Operation) -> bool:
        if self._wildcard is not None:
            of_all = _permissions(self._wildcard, principal, host, operation)
            if Permission.DENY in of_all:
                return False
            if Permission.ALLOW in of_all:
                return True
        prefixes = {
            name: _permissions(of_pattern, principal, host, operation) for name, of_pattern in self._prefixed.items()
        }
        denied = {name for name, found in prefixes.items() if Permission.DENY in found}
        lengths = sorted(set(map(len, denied)))

        def is_denied(name: str) -> bool:
            return any(name[:length] in denied for length in lengths if length <= len(name))

        if any(Permission.ALLOW in found and not is_denied(name) for name, found in prefixes.items()):
            return True
        for name, of_pattern in self._literal.items():
            found = _permissions(of_pattern, principal, host, operation)
            if Permission.ALLOW in found and Permission.DENY not in found and not is_denied(name):
                return True
        return False


def _permissions(of_pattern: _OfPattern, principal: str, host: str, operation: Operation) -> set[Permission]:
    """The permissions that a pattern's entries give for the operation."""
    _, by_principal = of_pattern
    return {
        entry.permission
        for who in (principal, EVERY_PRINCIPAL)
        for entry in by_principal.get(who, ())
        if entry.host in (host, WILDCARD) and entry.operation in (operation, Operation.ALL)
    }


NO_ACLS: Final = AclIndex(0, {})


class Authorizer:
    """The rules in force.  Each `Rights` follows them: a decision after `follow` is by the new rules."""

    def __init__(self, super_users: Iterable[str] = (), *, allows_uncovered: bool = False) -> None:
        """`allows_uncovered`: every principal may do everything with resources that no rule covers."""
        self._super_users: Final = frozenset(super_users)
        self._allows_uncovered: Final = allows_uncovered
        self._rights: Final[WeakValueDictionary[tuple[str, str], Rights]] = WeakValueDictionary()
        self.index = NO_ACLS

    def follow(self, index: AclIndex) -> None:
        """Decide by these rules from now on."""
        self.index = index

    def rights_of(self, principal: str, host: str) -> Rights:
        """One object for all connections of a principal from an address, so that they share its decisions."""
        key = principal, canonical_host(host)
        rights = self._rights.get(key)
        if rights is None:
            rights = self._rights[key] = Rights(self, *key)
        return rights

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        if principal in self._super_users:
            return _SUPER_USER
        decision = self.index.decide(principal, host, operation, resource_type, name)
        if decision is None:
            return _NO_ACL if self._allows_uncovered else _NO_MATCH
        return decision

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do it with some resource of this type, there or not."""
        if principal in self._super_users:
            return True
        if self._allows_uncovered and not self.index.covers_all(resource_type):
            return True
        return self.index.allows_any(principal, host, operation, resource_type)


class Rights:
    """What one principal may do from one address.  Decisions are kept until the rules change."""

    __slots__ = ("__weakref__", "_authorizer", "_decisions", "_index", "_readable", "_writable", "host", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self.principal: Final = principal
        self.host: Final = host
        self._authorizer: Final = authorizer
        self._index = authorizer.index
        self._decisions: dict[tuple[int, int, str], bool] = {}
        # Names of topics as they are in requests.
        self._writable: set[bytes] = set()
        self._readable: set[bytes] = set()

    @property
    def version(self) -> int:
        """Of the rules: what was decided under another version may be decided otherwise now."""
        return self._authorizer.index.version

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if self._index is not self._authorizer.index:
            self._forget()
        # Plain ints: an enumeration hashes by a call.
        key = int(operation), int(resource_type), name
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            allowed = self._decisions[key] = self.decide(operation, resource_type, name).is_allowed
        return allowed

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self._authorizer.allows_any(self.principal, self.host, operation, resource_type)

    def may_write(self, topic: bytes) -> bool:
        """Whether it may produce to the topic; for each batch, so a topic that it may write to costs one look-up."""
        if self._index is not self._authorizer.index:
            self._forget()
        return topic in self._writable or self._is_topic_allowed(Operation.WRITE, topic, self._writable)

    def may_read(self, topic: bytes) -> bool:
        """Whether it may fetch from the topic, see `may_write`."""
        if self._index is not self._authorizer.index:
            self._forget()
        return topic in self._readable or self._is_topic_allowed(Operation.READ, topic, self._readable)

    def decide(self, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        """The decision with its rule, which is not cached."""
        return self._authorizer.decide(self.principal, self.host, operation, resource_type, name)

    def authorized_operations(self, operations: Iterable[Operation], resource_type: ResourceType, name: str) -> int:
        """Those that it may do, as bits by their numbers (KIP-430)."""
        return sum(1 << each for each in operations if self.allows(each, resource_type, name))

    def _is_topic_allowed(self, operation: Operation, topic: bytes, allowed: set[bytes]) -> bool:
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return False
        if not self.allows(operation, ResourceType.TOPIC, name):
            return False
        if len(allowed) >= _DECISIONS_MAX:
            allowed.clear()
        allowed.add(topic)
        return True

    def _forget(self) -> None:
        self._index = self._authorizer.index
        self._decisions.clear()
        self._writable.clear()
        self._readable.clear()
