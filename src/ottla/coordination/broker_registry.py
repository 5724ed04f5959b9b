"""The cluster's id and secret, the registry of live brokers (2011 paper, section 3.2)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from ottla.coordination import layout
from ottla.coordination.node_json import Fields, NodeDamaged, encode
from ottla.coordination.tree import (
    ANY_VERSION,
    CreateNode,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    Operation,
    StandingWatch,
    Tree,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, uuid_to_text
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.runtime.mutex import Mutex

_SEPARATOR: Final = "://"


class BrokerIdTaken(OttlaError):
    """Another session holds this broker's registration: another broker with its id, or its own former process.  The
    latter ends with its session, so a retry after the session time-out distinguishes the two.
    """

    error_code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    hint = "give each broker its own node id; after a crash the former registration ends with its session"


class BrokerListener(NamedTuple):
    """A named address that clients or brokers reach; `security_protocol` is one of Kafka's, like `PLAINTEXT`."""

    name: str
    security_protocol: str
    host: str
    port: int


class BrokerRegistration(NamedTuple):
    """A broker's description of itself.  The first listener is also shown as its plain host and port."""

    node_id: NodeId
    listeners: tuple[BrokerListener, ...]
    rack: str | None = None
    # The highest level of each feature that the broker supports.
    features: Mapping[str, int] = MappingProxyType({})


class LiveBroker(NamedTuple):
    """A current registration; `broker_epoch` is the change id of its creation (KIP-380): a restart gets another."""

    registration: BrokerRegistration
    broker_epoch: int


class BrokersView(NamedTuple):
    """The live brokers at one moment.  A higher `version` is newer."""

    version: int
    by_id: Mapping[NodeId, LiveBroker]

    def epochs(self) -> dict[NodeId, int]:
        return {node_id: broker.broker_epoch for node_id, broker in self.by_id.items()}

    def has_leader(self, state: PartitionState) -> bool:
        """Whether the leader that the tree names is alive, in the incarnation that leads."""
        leader = self.by_id.get(state.leader)
        return leader is not None and state.is_led_by(ReplicaIncarnation(state.leader, leader.broker_epoch))


async def cluster_id(tree: Tree, new_id: Callable[[], UUID] = uuid4) -> str:
    """The cluster's id, in Kafka's 22 characters; created by the first caller, and never changed."""
    while True:
        try:
            node = await tree.get(layout.CLUSTER_ID)
        except NoNode:
            with contextlib.suppress(NodeExists):  # another broker was first: its id counts
                await tree.create(layout.CLUSTER_ID, encode({"version": 1, "id": uuid_to_text(new_id())}))
            continue
        return Fields.parse(layout.CLUSTER_ID, node.data).text("id")


async def login_secret(tree: Tree, new_secret: Callable[[], str]) -> str:
    """The cluster's secret, by which brokers answer alike for users that do not exist; created by the first caller."""
    while True:
        try:
            node = await tree.get(layout.LOGIN_SECRET)
        except NoNode:
            with contextlib.suppress(NodeExists):  # another broker was first: its secret counts
                await tree.create(layout.LOGIN_SECRET, encode({"version": 1, "secret": new_secret()}))
            continue
        return Fields.parse(layout.LOGIN_SECRET, node.data).text("secret")


async def _nothing() -> Sequence[Operation]:
    return ()


class BrokerRegistry:
    """The ephemeral nodes below `/brokers/ids`: one watch on their names, because they are created and deleted but
    never changed."""

    def __init__(self, tree: Tree, *, on_stale: Callable[[], None] | None = None) -> None:
        self.view = BrokersView(0, MappingProxyType({}))
        self._tree = tree
        self._watch = StandingWatch(on_stale)
        self._refreshing = Mutex()

    async def register(
        self,
        registration: BrokerRegistration,
        now_ms: int,
        with_it: Callable[[], Awaitable[Sequence[Operation]]] = _nothing,
    ) -> int:
        """Register a broker until this session ends; returns its broker epoch.

        Registering again in the same session replaces the node and gives a new epoch.  Raises `BrokerIdTaken`.
        `with_it`: further operations of the same request, called once no other session has the id.  When one of them
        fails, its `TreeError` is raised, and nothing is registered.
        """
        path = layout.broker_path(registration.node_id)
        create = CreateNode(path, encode_registration(registration, now_ms), ephemeral=True)
        operations: list[Operation] = [create]
        former = await self._tree.exists(path)
        if former is not None:
            if former.ephemeral_owner != self._tree.session_id:
                raise BrokerIdTaken(f"broker id {registration.node_id} is registered by another session")
            operations.insert(0, DeleteNode(path, ANY_VERSION))
        own_count = len(operations)
        operations += await with_it()
        try:
            await self._tree.multi(operations)
        except (NodeExists, NoNode) as error:
            if error.operation_index is not None and error.operation_index >= own_count:
                raise
            raise BrokerIdTaken(f"broker id {registration.node_id} was registered by another session") from error
        stat = (await self._tree.get(path)).stat
        if stat.ephemeral_owner != self._tree.session_id:
            raise BrokerIdTaken(f"broker id {registration.node_id} is registered by another session")
        return stat.czxid

    async def registered_ms(self, node_id: NodeId) -> int | None:
        """When the broker was registered, by the tree's own clock, which dates all nodes; None when it is not."""
        stat = await self._tree.exists(layout.broker_path(node_id))
        return None if stat is None else stat.ctime_ms

    async def refresh(self) -> BrokersView:
        """Read the live brokers; returns the same view when nothing changed."""
        async with self._refreshing:
            names = await self._watch.read(lambda watch: self._tree.children(layout.BROKER_IDS, watch=watch))
            node_ids = [registered_node_id(name) for name in names]
            paths = [layout.broker_path(node_id) for node_id in node_ids]
            live: dict[NodeId, LiveBroker] = {}
            for node_id, path, node in zip(node_ids, paths, await self._tree.get_many(paths), strict=True):
                if node is not None:
                    live[node_id] = self._live(node_id, path, node)
            if live != self.view.by_id:
                self.view = BrokersView(self.view.version + 1, MappingProxyType(live))
            return self.view

    def _live(self, node_id: NodeId, path: str, node: Node) -> LiveBroker:
        known = self.view.by_id.get(node_id)
        if known is not None and known.broker_epoch == node.stat.czxid:
            return known
        return LiveBroker(decode_registration(node_id, path, node.data), node.stat.czxid)


def encode_registration(registration: BrokerRegistration, now_ms: int) -> bytes:
    """Early Kafka's fields."""
    listeners = registration.listeners
    return encode(
        {
            "version": 1,
            **({"features": dict(registration.features)} if registration.features else {}),
            "host": listeners[0].host,
            "port": listeners[0].port,
            "endpoints": [f"{entry.name}{_SEPARATOR}{entry.host}:{entry.port}" for entry in listeners],
            "listener_security_protocol_map": {entry.name: entry.security_protocol for entry in listeners},
            "rack": registration.rack,
            "jmx_port": -1,
            "timestamp": str(now_ms),
        }
    )


def decode_registration(node_id: NodeId, path: str, data: bytes) -> BrokerRegistration:
    fields = Fields.parse(path, data)
    protocols = fields.text_map("listener_security_protocol_map")
    listeners = tuple(_listener(path, endpoint, protocols) for endpoint in fields.texts("endpoints"))
    return BrokerRegistration(node_id, listeners, fields.text_or_none("rack"), fields.levels("features"))


def _listener(path: str, endpoint: str, protocols: Mapping[str, str]) -> BrokerListener:
    name, separator, address = endpoint.partition(_SEPARATOR)
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isascii() or not port.isdigit() or name not in protocols:
        raise NodeDamaged(path, f"{endpoint!r} is not an endpoint of a listener that the node describes")
    return BrokerListener(name, protocols[name], host, int(port))


def registered_node_id(name: str) -> NodeId:
    """The broker of a node below `/brokers/ids`."""
    if not (name.isascii() and name.isdigit()):
        raise NodeDamaged(f"{layout.BROKER_IDS}/{name}", "is not named by a node id")
    return NodeId(int(name))


def registered_ms(path: str, data: bytes) -> int:
    """When the broker registered, by its own clock."""
    timestamp = Fields.parse(path, data).text("timestamp")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise NodeDamaged(path, f"'timestamp' should be a number, not {timestamp!r}")
    return int(timestamp)
