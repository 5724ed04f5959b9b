"""Changes of the access rules: written to the tree, and in force at this broker when a call returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ottla.coordination.acls import AclRegistry, Entries
from ottla.model.errors import OttlaError
from ottla.security.acl import AccessEntry, Acl, AclFilter, ResourcePattern
from ottla.security.authorizer import AclIndex, Authorizer


class AclChanges:
    """`AclAdmin` of a running broker."""

    def __init__(self, registry: AclRegistry, authorizer: Authorizer) -> None:
        self._registry: Final = registry
        self._authorizer: Final = authorizer

    @property
    def index(self) -> AclIndex:
        return self._authorizer.index

    async def follow(self) -> None:
        """Read the rules from the tree, and decide by them."""
        self._authorizer.follow(await self._registry.refresh())

    async def create(self, acls: Sequence[Acl]) -> Mapping[Acl, OttlaError]:
        by_pattern: dict[ResourcePattern, list[AccessEntry]] = {}
        for acl in acls:
            by_pattern.setdefault(acl.pattern, []).append(acl.entry)
        problems: dict[Acl, OttlaError] = {}
        for pattern, entries in by_pattern.items():
            try:
                await self._registry.update(pattern, partial(_with, tuple(entries)))
            except OttlaError as error:
                problems.update(dict.fromkeys((Acl(pattern, entry) for entry in entries), error))
        await self._follow_own(problems, acls)
        return problems

    async def delete(self, wanted: AclFilter) -> Sequence[Acl]:
        await self.follow()
        deleted: list[Acl] = []
        for pattern in [each for each in self.index.patterns if wanted.matches_pattern(each)]:
            before, after = await self._registry.update(pattern, partial(_without, wanted))
            deleted += [Acl(pattern, entry) for entry in before if entry not in after]
        await self.follow()
        return deleted

    async def _follow_own(self, problems: dict[Acl, OttlaError], acls: Sequence[Acl]) -> None:
        try:
            await self.follow()
        except OttlaError as error:
            # Written, but not in force here yet: the client may repeat it, since a rule that exists is no error.
            problems.update(dict.fromkeys(acls, error))


def _with(added: Entries, before: Entries) -> Entries:
    return tuple(dict.fromkeys((*before, *added)))


def _without(wanted: AclFilter, before: Entries) -> Entries:
    return tuple(each for each in before if not wanted.matches_entry(each))
