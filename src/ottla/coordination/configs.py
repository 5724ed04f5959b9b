"""The config registry: dynamic settings of topics, brokers, groups and users, as Kafka keeps them: names and values as
text.

`model` defines the names, the allowed values and the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.coordination.changes import ChangeFollower, Changes
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.tree import BadVersion, CreateNode, DeleteNode, NodeExists, NoNode, Operation, SetNode, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId
from ottla.runtime.mutex import Mutex

_SUBJECT: Final = "config/"
_GROUPS: Final = "groups"
_USERS: Final = "users"
_KINDS: Final = ("topics", "brokers", _GROUPS, _USERS)
# Their names may be any text.
_ESCAPED_KINDS: Final = (_GROUPS, _USERS)
EVERY_BROKER: Final = "<default>"
UPDATE_ATTEMPTS_MAX: Final = 100  # each failed attempt means that another writer succeeded
_NOTHING_SET: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigEntity(NamedTuple):
    """The owner of settings: kind `topics`, `brokers`, `groups` or `users`, and its name."""

    kind: str
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigEntity:
        return cls("topics", name)

    @classmethod
    def broker(cls, node_id: NodeId | None) -> ConfigEntity:
        """One broker, or the default of all brokers (None)."""
        return cls("brokers", EVERY_BROKER if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigEntity:
        return cls(_GROUPS, group_id)

    @classmethod
    def user(cls, username: str) -> ConfigEntity:
        return cls(_USERS, username)

    @classmethod
    def at_node(cls, kind: str, node_name: str) -> ConfigEntity:
        """The owner of the node `/config/<kind>/<node_name>`."""
        return cls(kind, unquote(node_name) if kind in _ESCAPED_KINDS else node_name)

    @property
    def node_name(self) -> str:
        # Slashes, and dots, which alone would be path components, are written as %XX.
        return quote(self.name, safe="").replace(".", "%2E") if self.kind in _ESCAPED_KINDS else self.name

    @property
    def path(self) -> str:
        return f"/config/{self.kind}/{self.node_name}"

    @property
    def subject(self) -> str:
        return f"{_SUBJECT}{self.kind}/{self.node_name}"


@dataclass(frozen=True, slots=True)
class ConfigsView:
    """All dynamic settings as they were at one moment.  A higher `version` is newer."""

    version: int
    settings: Mapping[ConfigEntity, Mapping[str, str]]

    def of(self, entity: ConfigEntity) -> Mapping[str, str]:
        return self.settings.get(entity, _NOTHING_SET)

    def topic(self, name: str) -> Mapping[str, str]:
        return self.of(ConfigEntity.topic(name))

    def users(self) -> list[str]:
        """The names of users with settings: SCRAM credentials, of which each is a secret."""
        return [entity.name for entity in self.settings if entity.kind == _USERS]

    def groups(self) -> list[str]:
        """The ids of groups with their own settings."""
        return [entity.name for entity in self.settings if entity.kind == _GROUPS]


class ConfigRegistry:
    """Dynamic settings in the tree.  `view` is the state as of the last `refresh`; `on_stale` reports newer changes."""

    def __init__(self, tree: Tree, *, on_stale: Callable[[], None] | None = None) -> None:
        self.view = ConfigsView(0, MappingProxyType({}))
        self._tree = tree
        self._changes = Changes(tree)
        self._follower = ChangeFollower(tree, on_stale)
        self._refreshing = Mutex()

    async def refresh(self) -> ConfigsView:
        """Read the changes since the last call; returns the same view when there are none."""
        async with self._refreshing:
            mark = await self._follower.look()
            missed = self._follower.missed(mark)
            if missed is None:
                await self._read(await self._all_entities(), keep_others=False)
            else:
                entities = [entity for subject in missed if (entity := _entity_of(subject)) is not None]
                if entities:
                    await self._read(entities, keep_others=True)
            self._follower.settle(mark)
            return self.view

    async def get(self, entity: ConfigEntity) -> Mapping[str, str]:
        """The current settings, read from the tree.  Raises `RequestError` for a topic that does not exist."""
        settings, _ = await self._get(entity)
        return settings

    async def update(
        self, entity: ConfigEntity, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """Replace the settings by `change(settings)`, which is called again when another writer was faster.

        Raises `RequestError` for a topic that does not exist, and what `change` raises.
        """
        for _ in range(UPDATE_ATTEMPTS_MAX):
            before, version = await self._get(entity)
            after = dict(change(before))
            if after == before:
                return before
            try:
                await self._changes.commit([_write(entity, after, version)], [entity.subject])
            except (BadVersion, NodeExists, NoNode):
                continue
            return after
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"{entity.path} is being changed by many writers at once")

    async def _get(self, entity: ConfigEntity) -> tuple[Mapping[str, str], int | None]:
        try:
            node = await self._tree.get(entity.path)
        except NoNode as error:
            if entity.kind == "topics":  # created and deleted with its topic
                problem = f"there is no topic {entity.name!r}"
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem) from error
            return {}, None
        return decode_config(entity.path, node.data), node.stat.version

    async def _all_entities(self) -> list[ConfigEntity]:
        return [
            ConfigEntity.at_node(kind, name) for kind in _KINDS for name in await self._tree.children(f"/config/{kind}")
        ]

    async def _read(self, entities: Sequence[ConfigEntity], *, keep_others: bool) -> None:
        settings = dict(self.view.settings) if keep_others else {}
        nodes = await self._tree.get_many([entity.path for entity in entities])
        for entity, node in zip(entities, nodes, strict=True):
            settings.pop(entity, None)
            if node is not None:
                settings[entity] = MappingProxyType(decode_config(entity.path, node.data))
        if settings != self.view.settings:
            self.view = ConfigsView(self.view.version + 1, MappingProxyType(settings))


def encode_config(settings: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(settings)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    return Fields.parse(path, data).text_map("config")


def _write(entity: ConfigEntity, settings: Mapping[str, str], version: int | None) -> Operation:
    if entity.kind == _GROUPS and version is not None and not settings:
        # Groups appear and vanish without notice to the registry: a node without settings is deleted.
        return DeleteNode(entity.path, version)
    data = encode_config(settings)
    return CreateNode(entity.path, data) if version is None else SetNode(entity.path, data, version)


def _entity_of(subject: str) -> ConfigEntity | None:
    if not subject.startswith(_SUBJECT):
        return None
    kind, _, name = subject.removeprefix(_SUBJECT).partition("/")
    return ConfigEntity.at_node(kind, name) if kind in _KINDS and name else None
