"""Which brokers a supervisor runs: their ids, directories, ports and settings.  Pure.

The first broker has the data directory and the node id that a standalone one has, and what a machine has once: the
schema registry, and the given port of the admin listener.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from ottla.model.broker_settings import (
    DEFAULT_REPLICATION_FACTOR,
    LISTENER_SECURITY_PROTOCOL_MAP,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId
from ottla.model.listener import PORT_MAX, Listener
from ottla.model.security_settings import SECURITY_LOG_FILE
from ottla.model.serve_options import ServeOptions
from ottla.storage.directory.process_places import FIRST_DIRECTORY, BrokerPlace, ProcessPlaces, place_of

# Topics whose replicas are on one machine: more than one protects against the loss of a directory only.
ONE_REPLICA: Final = (
    DEFAULT_REPLICATION_FACTOR,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR,
)
_FACTORS: Final = (
    DEFAULT_REPLICATION_FACTOR,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)


def planned(
    saved: ProcessPlaces | None,
    brokers_count: int | None,
    first_node_id: NodeId,
    options: ServeOptions,
    free_port: Callable[[str], int],
) -> ProcessPlaces:
    """The brokers to run: as they were, as far as the count and the listeners are the same.

    `brokers_count` None: as many as there were.  `first_node_id` is that of the data directory.  A broker's own ports
    follow the shared one; where that is a free one (0), `free_port` of the host returns them.
    """
    wanted_count = brokers_count or (1 if saved is None else len(saved.brokers))
    has_ports = saved is not None and _is_same(saved.listeners, options.listeners)
    if saved is not None and has_ports:
        listeners = saved.listeners
    else:
        listeners = tuple(each._replace(port=each.port or free_port(each.host)) for each in options.listeners)
    kept = [] if saved is None else list(saved.brokers[:wanted_count])
    taken = {each.port for each in listeners} | _ports_of_others(options, wanted_count)
    if has_ports:
        taken.update(port for each in kept for port in each.ports)

    def own_ports() -> tuple[int, ...]:
        return tuple(
            _own_port(shared, given, taken, free_port)
            for shared, given in zip(listeners, options.listeners, strict=True)
        )

    if not kept:
        kept = [BrokerPlace(first_node_id, FIRST_DIRECTORY, own_ports())]
    elif not has_ports:
        kept = [each._replace(ports=own_ports()) for each in kept]
    while len(kept) < wanted_count:
        kept.append(place_of(NodeId(max(each.node_id for each in kept) + 1), own_ports()))
    return ProcessPlaces(listeners, tuple(kept))


def _is_same(saved: Sequence[Listener], given: Sequence[Listener]) -> bool:
    """A free port may be any."""
    return len(saved) == len(given) and all(
        (each.name, each.host, each.port) == (wanted.name, wanted.host, wanted.port or each.port)
        for each, wanted in zip(saved, given, strict=True)
    )


def _ports_of_others(options: ServeOptions, brokers_count: int) -> set[int]:
    """Those of servers over HTTP."""
    admin, registry = options.admin_listener, options.registry
    found = set() if registry is None else {registry.listener.port}
    if admin is not None and admin.port:
        found.update(range(admin.port, admin.port + brokers_count))
    return found


def _own_port(shared: Listener, given: Listener, taken: set[int], free_port: Callable[[str], int]) -> int:
    ports = count(shared.port + 1) if given.port else iter(lambda: free_port(given.host), None)
    port = next(each for each in ports if each not in taken)
    if port > PORT_MAX:
        raise ConfigError(f"the ports after {shared.port} do not suffice for all processes", hint="choose a lower one")
    taken.add(port)
    return port


def require_supported(options: ServeOptions, brokers_count: int) -> None:
    """Raises `ConfigError` for settings with which the brokers would wait for ever."""
    for setting in _FACTORS:
        factor = options.settings[setting]
        if options.settings.given(setting) is not None and factor > brokers_count:
            raise ConfigError(
                f"{setting.name}={factor}, and there are {brokers_count} processes",
                hint="remove it: the default with --processes is 1, and more replicas on one machine protect against "
                "the loss of one process's directory only",
            )


def has_several_replicas(options: ServeOptions) -> bool:
    """Whether a given setting asks for them."""
    return any(options.settings.given(setting) is not None and options.settings[setting] > 1 for setting in _FACTORS)


def settings_of(places: ProcessPlaces, index: int, options: ServeOptions, tree_socket: str) -> dict[str, str]:
    """The settings of the broker at `index`, by name, over those that were given."""
    place = places.brokers[index]
    own = [each._replace(port=port) for each, port in zip(places.listeners, place.ports, strict=True)]
    protocols = ",".join(f"{each.name}:{each.protocol}" for each in options.listeners)
    found = {
        "node.id": str(place.node_id),
        "tree.socket": tree_socket,
        "listeners": ",".join(map(str, own)),
        "shared.listeners": ",".join(map(str, places.listeners)),
        LISTENER_SECURITY_PROTOCOL_MAP.name: protocols,
    }
    if options.advertised:
        found["advertised.listeners"] = ",".join(map(str, _advertised(places, place, options)))
    settings = options.settings
    found |= {setting.name: "1" for setting in ONE_REPLICA if settings.given(setting) is None}
    if index > 0:
        if options.registry is not None:
            found["schema.registry.listeners"] = ""
        file = settings[SECURITY_LOG_FILE]
        if file is not None:
            found[SECURITY_LOG_FILE.name] = f"{file}.{place.node_id}"
    return found


def _advertised(places: ProcessPlaces, place: BrokerPlace, options: ServeOptions) -> list[Listener]:
    """As far from the advertised port as the own port is from the shared one: a range of ports that is forwarded."""
    own = {each.name: port - each.port for each, port in zip(places.listeners, place.ports, strict=True)}
    return [each._replace(port=each.port + own[each.name]) for each in options.advertised]


def admin_address(options: ServeOptions, index: int) -> Listener | None:
    """Where the broker at `index` has its admin listener: at the given port, and the ports after it."""
    admin = options.admin_listener
    if admin is None or not admin.port:
        return admin
    return admin._replace(port=admin.port + index)
