"""The brokers that `ottla serve --processes` runs on one data directory: where each has its directory and its ports.

The data directory itself is that of the first broker, which a standalone broker has alone.  The folder `processes` in
it is the supervisor's: its lock, the socket of the tree, `processes.json` and the directories of the other brokers.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId
from ottla.model.listener import PORT_MAX, Listener, parse_listeners
from ottla.runtime.disk import Disk, read_file, replace_file

PROCESSES_FOLDER: Final = "processes"
PROCESSES_FILE: Final = "processes.json"
# While it is there, the number of brokers is being changed (maintenance/resize_journal.py).
RESIZE_FILE: Final = "resize.json"
BROKER_PREFIX: Final = "broker-"
# Of the first broker: the data directory itself.
FIRST_DIRECTORY: Final = "."
_VERSION: Final = 1


class BrokerPlace(NamedTuple):
    """`directory` is relative to the data directory; `ports` are this broker's own, in the order of the listeners."""

    node_id: NodeId
    directory: str
    ports: tuple[int, ...]

    def path(self, data_dir: str) -> str:
        return data_dir if self.directory == FIRST_DIRECTORY else f"{data_dir}/{self.directory}"


class ProcessPlaces(NamedTuple):
    """All brokers of a data directory, the first one first; `listeners` have the ports that all of them share."""

    listeners: tuple[Listener, ...]
    brokers: tuple[BrokerPlace, ...]


def folder_of(data_dir: str) -> str:
    return f"{data_dir}/{PROCESSES_FOLDER}"


def place_of(node_id: NodeId, ports: Sequence[int]) -> BrokerPlace:
    """Of a broker that is not the first one."""
    return BrokerPlace(node_id, f"{PROCESSES_FOLDER}/{BROKER_PREFIX}{node_id}", tuple(ports))


def has_unfinished_resize(disk: Disk, data_dir: str) -> bool:
    """Whether a change of the number of brokers was interrupted: logs may be at brokers that the tree does not name."""
    return disk.exists(f"{folder_of(data_dir)}/{RESIZE_FILE}")


def finishing_hint(data_dir: str) -> str:
    """What a user does about `has_unfinished_resize`."""
    return f"start `ottla serve --data-dir {shlex.quote(data_dir)}` once: it finishes the change before a broker starts"


def read_places(disk: Disk, data_dir: str) -> ProcessPlaces | None:
    """None where no processes, or only one, served the directory last.  Raises `ConfigError` and `OSError`."""
    path = f"{folder_of(data_dir)}/{PROCESSES_FILE}"
    if not disk.exists(path):
        return None
    try:
        content = json.loads(read_file(disk, path))
        if content["version"] != _VERSION:
            raise ConfigError(
                f"{path} has version {content['version']!r}, and this Ottla knows {_VERSION}",
                hint="a newer Ottla wrote it: use that one",
            )
        found = ProcessPlaces(
            parse_listeners(content["listeners"], setting=PROCESSES_FILE),
            tuple(
                BrokerPlace(NodeId(each["node_id"]), each["directory"], tuple(each["ports"]))
                for each in content["brokers"]
            ),
        )
        _check(found)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error!r}",
            hint="restore the file from a backup: it names the brokers whose directories are beside it",
        ) from None
    return found


def write_places(disk: Disk, data_dir: str, places: ProcessPlaces) -> None:
    """Durably; the folder exists.  Raises `OSError`."""
    _check(places)
    content = {
        "version": _VERSION,
        "listeners": ",".join(map(str, places.listeners)),
        "brokers": [
            {"node_id": each.node_id, "directory": each.directory, "ports": list(each.ports)} for each in places.brokers
        ],
    }
    replace_file(disk, f"{folder_of(data_dir)}/{PROCESSES_FILE}", json.dumps(content).encode() + b"\n")


def directories_of(disk: Disk, data_dir: str) -> list[str]:
    """The data directory and those of further brokers, as far as they exist.  Raises `ConfigError` and `OSError`."""
    places = read_places(disk, data_dir)
    further = [] if places is None else [each.path(data_dir) for each in places.brokers[1:]]
    return [data_dir, *(path for path in further if disk.exists(path))]


def remove_places(disk: Disk, data_dir: str) -> None:
    """One broker has all partitions: the directory is again that of a standalone one.  Raises `OSError`."""
    folder = folder_of(data_dir)
    if disk.exists(f"{folder}/{PROCESSES_FILE}"):
        disk.remove(f"{folder}/{PROCESSES_FILE}")
        disk.sync_directory(folder)


def _check(places: ProcessPlaces) -> None:
    """Raises `ValueError`."""
    node_ids = [each.node_id for each in places.brokers]
    directories = [each.directory for each in places.brokers]
    if not node_ids or len(set(node_ids)) < len(node_ids) or len(set(directories)) < len(directories):
        raise ValueError("its brokers are not distinct")
    if directories[0] != FIRST_DIRECTORY or any(
        each != place_of(each.node_id, each.ports) for each in places.brokers[1:]
    ):
        raise ValueError("its brokers have other directories than were given to them")
    for each in places.brokers:
        if len(each.ports) != len(places.listeners) or not all(0 < port <= PORT_MAX for port in each.ports):
            raise ValueError(f"broker {each.node_id} has no port for each listener")
