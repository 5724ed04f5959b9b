"""The access rules in the tree: a node for each pattern of resources, `/acls/<literal|prefixed>/<type>/<name>`.

Each node has all entries of its pattern and is replaced by compare-and-set: of two brokers that change the rules of one
pattern at once neither loses a rule (KAFKA-3328).  The content is that of Apache Kafka's ZooKeeper nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from ottla.coordination.changes import ChangeFollower, Changes
from ottla.coordination.node_json import Fields, NodeDamaged, encode
from ottla.coordination.tree import BadVersion, CreateNode, DeleteNode, NodeExists, NoNode, Operation, SetNode, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.runtime.mutex import Mutex
from ottla.security import acl as acls
from ottla.security.acl import AccessEntry, PatternType, Permission, ResourcePattern, ResourceType
from ottla.security.authorizer import NO_ACLS, AclIndex

_ROOT: Final = "/acls"
_SUBJECT: Final = "acls/"
UPDATE_ATTEMPTS_MAX: Final = 100  # each failed attempt means that another writer succeeded

_PATTERN_TYPES: Final = {each.name.lower(): each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
_RESOURCE_TYPES: Final = {each.name.lower(): each for each in ResourceType if each is not ResourceType.ANY}

Entries = tuple[AccessEntry, ...]


class AclRegistry:
    """Access rules in the tree.  `view` is the state as of the last `refresh`; `on_stale` reports newer changes."""

    def __init__(self, tree: Tree, *, on_stale: Callable[[], None] | None = None) -> None:
        self.view = NO_ACLS
        self._tree = tree
        self._changes = Changes(tree)
        self._follower = ChangeFollower(tree, on_stale)
        self._refreshing = Mutex()

    async def refresh(self) -> AclIndex:
        """Read the changes since the last call; returns the same view when there are none."""
        async with self._refreshing:
            mark = await self._follower.look()
            missed = self._follower.missed(mark)
            if missed is None:
                await self._read(await self._all_patterns(), keep_others=False)
            else:
                patterns = [pattern for subject in missed if (pattern := _pattern_of(subject)) is not None]
                if patterns:
                    await self._read(patterns, keep_others=True)
            self._follower.settle(mark)
            return self.view

    async def update(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> tuple[Entries, Entries]:
        """Replace a pattern's entries by `change(entries)`, which is called again when another writer was faster.

        Returns the entries before and after.  Raises `RequestError` when too many others write.
        """
        path = _path(pattern)
        for _ in range(UPDATE_ATTEMPTS_MAX):
            before, version = await self._get(path)
            after = change(before)
            if after == before:
                return before, after
            try:
                await self._changes.commit(await self._operations(path, after, version), [_subject(pattern)])
            except (BadVersion, NodeExists, NoNode):
                continue
            return before, after
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is being changed by many writers at once")

    async def _get(self, path: str) -> tuple[Entries, int | None]:
        try:
            node = await self._tree.get(path)
        except NoNode:
            return (), None
        return decode_entries(path, node.data), node.stat.version

    async def _operations(self, path: str, entries: Entries, version: int | None) -> Sequence[Operation]:
        if version is not None:
            return [SetNode(path, encode_entries(entries), version) if entries else DeleteNode(path, version)]
        parents = [path.rsplit("/", levels)[0] for levels in (2, 1)]
        found = await self._tree.get_many(parents)
        missing = [CreateNode(parent) for parent, node in zip(parents, found, strict=True) if node is None]
        return [*missing, CreateNode(path, encode_entries(entries))]

    async def _all_patterns(self) -> list[ResourcePattern]:
        patterns: list[ResourcePattern] = []
        for pattern_type in await self._children(_ROOT):
            for resource_type in await self._children(f"{_ROOT}/{pattern_type}"):
                for name in await self._children(f"{_ROOT}/{pattern_type}/{resource_type}"):
                    path = f"{pattern_type}/{resource_type}/{name}"
                    pattern = _pattern_of(f"{_SUBJECT}{path}")
                    if pattern is None:
                        # A rule that is not understood may be one that denies.
                        raise NodeDamaged(f"{_ROOT}/{path}", "is not named by a kind of pattern and a type of resource")
                    patterns.append(pattern)
        return patterns

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._tree.children(path)
        except NoNode:
            return []

    async def _read(self, patterns: Sequence[ResourcePattern], *, keep_others: bool) -> None:
        changed: dict[ResourcePattern, Entries] = {}
        paths = [_path(pattern) for pattern in patterns]
        for pattern, path, node in zip(patterns, paths, await self._tree.get_many(paths), strict=True):
            changed[pattern] = () if node is None else decode_entries(path, node.data)
        if keep_others:
            self.view = self.view.changed(changed)
        elif (found := {pattern: entries for pattern, entries in changed.items() if entries}) != self.view.patterns:
            self.view = AclIndex(self.view.version + 1, found)


def encode_entries(entries: Sequence[AccessEntry]) -> bytes:
    return encode(
        {
            "version": 1,
            "acls": [
                {
                    "principal": entry.principal,
                    "permissionType": entry.permission.label,
                    "operation": entry.operation.label,
                    "host": entry.host,
                }
                for entry in entries
            ],
        }
    )


def decode_entries(path: str, data: bytes) -> Entries:
    listed = Fields.parse(path, data).content.get("acls")
    if not isinstance(listed, list):
        raise NodeDamaged(path, f"'acls' should be an array, not {listed!r}")
    return tuple(_entry(path, each) for each in listed)


def _entry(path: str, content: object) -> AccessEntry:
    if not isinstance(content, Mapping):
        raise NodeDamaged(path, f"'acls' should hold objects, not {content!r}")
    fields = Fields(path, content)
    try:
        operation = acls.from_label(acls.Operation, fields.text("operation"))
        permission = acls.from_label(Permission, fields.text("permissionType"))
    except ValueError as error:
        # A rule that is not understood may be one that denies.
        raise NodeDamaged(path, str(error)) from error
    return AccessEntry(fields.text("principal"), fields.text("host"), operation, permission)


def _name_path(pattern: ResourcePattern) -> str:
    # A name may be any text: slashes, and dots, which alone would be path components, are written as %XX.
    name = quote(pattern.name, safe="").replace(".", "%2E")
    return f"{pattern.pattern_type.name.lower()}/{pattern.resource_type.name.lower()}/{name}"


def _path(pattern: ResourcePattern) -> str:
    return f"{_ROOT}/{_name_path(pattern)}"


def _subject(pattern: ResourcePattern) -> str:
    return f"{_SUBJECT}{_name_path(pattern)}"


def _pattern_of(subject: str) -> ResourcePattern | None:
    """The pattern of a subject; None for the subject of another registry."""
    if not subject.startswith(_SUBJECT):
        return None
    pattern_name, _, rest = subject.removeprefix(_SUBJECT).partition("/")
    type_name, _, name = rest.partition("/")
    pattern_type, resource_type = _PATTERN_TYPES.get(pattern_name), _RESOURCE_TYPES.get(type_name)
    if pattern_type is None or resource_type is None or not name:
        return None
    return ResourcePattern(resource_type, pattern_type, unquote(name))
