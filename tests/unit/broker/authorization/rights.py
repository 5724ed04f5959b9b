"""An access whose rights a test writes as text: `READ TOPIC:orders`."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.net.access import Access, Denial
from ottla.security.acl import (
    CLUSTER_NAME,
    AccessEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.authorizer import AclIndex, Authorizer

ADA = "User:ada"
HOST = "192.0.2.1"


class Rights:
    """The rights of a principal, and what it was denied."""

    def __init__(self, *rights: str, principal: str = ADA) -> None:
        self.denials: list[Denial] = []
        self._authorizer = Authorizer()
        self._principal = principal
        self.access = Access(self._authorizer.rights_of(principal, HOST), "PLAINTEXT", self)
        self.set(*rights)

    def set(self, *rights: str) -> None:
        """Replace all rights."""
        self._authorizer.follow(AclIndex(self._authorizer.index.version + 1, patterns_of(rights, self._principal)))

    def denied(self, denial: Denial) -> None:
        self.denials.append(denial)

    def denied_texts(self) -> list[str]:
        return [f"{each.operation.name} {each.resource_type.name}:{each.resource}" for each in self.denials]


def patterns_of(rights: Sequence[str], principal: str = ADA) -> dict[ResourcePattern, list[AccessEntry]]:
    patterns: dict[ResourcePattern, list[AccessEntry]] = {}
    for right in rights:
        operation, _, resource = right.partition(" ")
        kind, _, name = resource.partition(":")
        is_prefix = name.endswith("*") and name != "*"
        pattern = ResourcePattern(
            ResourceType[kind],
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            CLUSTER_NAME if kind == "CLUSTER" else name.removesuffix("*") if is_prefix else name,
        )
        entry = AccessEntry(principal, "*", Operation[operation], Permission.ALLOW)
        patterns.setdefault(pattern, []).append(entry)
    return patterns
