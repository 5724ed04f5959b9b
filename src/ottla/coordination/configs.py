"""The config registry: dynamic settings of topics, brokers, groups and users, and the quotas of users, clients and
addresses, as Kafka keeps them: names and values as text.

`model` defines the names, the allowed values and the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_CLIENTS: Final = "clients"
_IPS: Final = "ips"
_KINDS: Final = ("topics", "brokers", _GROUPS, _USERS, _CLIENTS, _IPS)
# Their names may be any text.
_ESCAPED_KINDS: Final = (_GROUPS, _USERS, _CLIENTS, _IPS)
# They have quotas; an empty name is the default of the kind.
_QUOTA_KINDS: Final = (_USERS, _CLIENTS, _IPS)
# They appear and vanish without notice to the registry: a node without settings is deleted.
_PASSING_KINDS: Final = (_GROUPS, _CLIENTS, _IPS)
_DEFAULT: Final = "<default>"
EVERY_BROKER: Final = _DEFAULT
UPDATE_ATTEMPTS_MAX: Final = 100  # each failed attempt means that another writer succeeded
_NOTHING_SET: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigEntity(NamedTuple):
    """The owner of settings: its kind, as below `/config`, and its name; of a user, also one of its clients."""

    kind: str
    name: str
    # None: all clients of the user together.
    client_id: str | None = None

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
    def quota_of(cls, user: str | None, client_id: str | None) -> ConfigEntity:
        """The owner of a user's quotas, of a client's, or those of a client of a user; empty names are defaults."""
        if user is not None:
            return cls(_USERS, user, client_id)
        assert client_id is not None, "a quota has a user or a client"
        return cls(_CLIENTS, client_id)

    @classmethod
    def address(cls, ip: str) -> ConfigEntity:
        return cls(_IPS, ip)

    @classmethod
    def at_path(cls, path: str) -> ConfigEntity | None:
        """The owner of the node `/config/<path>`; None for one that has no settings."""
        kind, _, rest = path.partition("/")
        name, _, below = rest.partition("/")
        if kind not in _KINDS or not name:
            return None
        if not below:
            return cls(kind, _name_at(kind, name))
        clients, _, client = below.partition("/")
        if kind != _USERS or clients != _CLIENTS or not client:
            return None
        return cls(kind, _name_at(kind, name), _name_at(_CLIENTS, client))

    @property
    def is_passing(self) -> bool:
        """Whether its node is deleted with its last setting."""
        return self.kind in _PASSING_KINDS or self.client_id is not None

    @property
    def path(self) -> str:
        return f"/{self.subject}"

    @property
    def subject(self) -> str:
        of_user = f"{_SUBJECT}{self.kind}/{_node_name(self.kind, self.name)}"
        return of_user if self.client_id is None else f"{of_user}/{_CLIENTS}/{_node_name(_CLIENTS, self.client_id)}"

    @property
    def parents(self) -> Sequence[str]:
        """The nodes above it that do not stand, the upper one first."""
        return () if self.client_id is None else (ConfigEntity.user(self.name).path, _clients_path(self))


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
        """The names of users with settings: SCRAM credentials, of which each is a secret, and quotas."""
        return [entity.name for entity in self.settings if entity.kind == _USERS and entity.client_id is None]

    def with_quotas(self) -> Iterator[tuple[ConfigEntity, Mapping[str, str]]]:
        """The settings of users, clients and addresses."""
        return ((entity, settings) for entity, settings in self.settings.items() if entity.kind in _QUOTA_KINDS)

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
                operations = [*await self._missing_parents(entity, version), _write(entity, after, version)]
                await self._changes.commit(operations, [entity.subject])
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

    async def _missing_parents(self, entity: ConfigEntity, version: int | None) -> list[CreateNode]:
        if version is not None or not entity.parents:
            return []
        nodes = await self._tree.get_many(entity.parents)
        of_user, clients = (node is None for node in nodes)
        user_path, clients_path = entity.parents
        return [
            *([CreateNode(user_path, encode_config({}))] if of_user else []),
            *([CreateNode(clients_path)] if clients else []),
        ]

    async def _all_entities(self) -> list[ConfigEntity]:
        paths = [f"{kind}/{name}" for kind in _KINDS for name in await self._tree.children(f"/config/{kind}")]
        entities = [entity for path in paths if (entity := ConfigEntity.at_path(path)) is not None]
        users = [entity for entity in entities if entity.kind == _USERS]
        nodes = await self._tree.get_many([_clients_path(user) for user in users])
        for user in (user for user, node in zip(users, nodes, strict=True) if node is not None):
            names = await self._tree.children(_clients_path(user))
            entities += [user._replace(client_id=_name_at(_CLIENTS, name)) for name in names]
        return entities

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
    if entity.is_passing and version is not None and not settings:
        return DeleteNode(entity.path, version)
    data = encode_config(settings)
    return CreateNode(entity.path, data) if version is None else SetNode(entity.path, data, version)


def _entity_of(subject: str) -> ConfigEntity | None:
    return ConfigEntity.at_path(subject.removeprefix(_SUBJECT)) if subject.startswith(_SUBJECT) else None


def _node_name(kind: str, name: str) -> str:
    if kind in _QUOTA_KINDS and not name:
        return _DEFAULT
    # Slashes, and dots, which alone would be path components, are written as %XX, and so is the default's name.
    return quote(name, safe="").replace(".", "%2E") if kind in _ESCAPED_KINDS else name


def _name_at(kind: str, node_name: str) -> str:
    if kind in _QUOTA_KINDS and node_name == _DEFAULT:
        return ""
    return unquote(node_name) if kind in _ESCAPED_KINDS else node_name


def _clients_path(user: ConfigEntity) -> str:
    return f"{ConfigEntity.user(user.name).path}/{_CLIENTS}"
