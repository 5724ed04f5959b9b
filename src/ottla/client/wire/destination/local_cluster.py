"""What `ottla cluster up` keeps in its directory: ports, racks and settings stay the same from start to start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.listener import PORT_MAX

DEFAULT_DATA_DIR: Final = "ottla-cluster"
HOST: Final = "127.0.0.1"
# Of a secured cluster, and the file in it by which its administrator logs in.
SECURITY_FOLDER: Final = "security"
CLIENT_PROPERTIES: Final = "client.properties"
_FILE: Final = "cluster.json"
# Of a cluster with a ZooKeeper; one without it is of version 2, which older programs refuse.
_VERSION: Final = 1
_VERSION_WITHOUT_ZOOKEEPER: Final = 2
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class LocalClusterError(OttlaError):
    """The directory is not one of a local cluster, or of another one than was named."""


class LocalCluster(NamedTuple):
    """Port 0 is a free one, which is known after the start."""

    # None without a ZooKeeper.
    zookeeper_port: int | None
    # By node id, from 1 on.
    ports: tuple[int, ...]
    # By node id too; none, or one for each broker.
    racks: tuple[str, ...] = ()
    # Those of all brokers that `--set` gave.
    settings: Mapping[str, str] = _NO_SETTINGS
    is_secure: bool = False

    @property
    def has_zookeeper(self) -> bool:
        return self.zookeeper_port is not None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)


def read_local_cluster(data_dir: Path) -> LocalCluster | None:
    """None when no cluster has run there.  Raises `LocalClusterError`."""
    path = data_dir / _FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LocalClusterError(
            f"{path} cannot be read: {error.strerror}", hint="name the brokers: --bootstrap-server HOST:PORT"
        ) from None
    try:
        content = json.loads(text)
        if content["version"] not in (_VERSION, _VERSION_WITHOUT_ZOOKEEPER):
            raise LocalClusterError(
                f"{path} has version {content['version']!r}, and this Ottla knows 1 and 2",
                hint="a newer Ottla wrote it: use that one",
            )
        racks, settings = tuple(content.get("racks", ())), dict(content.get("settings", {}))
        is_secure = content.get("secure", False) is True
        found = LocalCluster(content["zookeeper_port"], tuple(content["ports"]), racks, settings, is_secure)
        used = [*found.ports, *([] if found.zookeeper_port is None else [found.zookeeper_port])]
        if not found.ports or not all(type(port) is int and 0 < port <= PORT_MAX for port in used):
            raise ValueError("its ports are no ports")
        if racks and len(racks) != len(found.ports):
            raise ValueError("it has other racks than brokers")
        if not all(type(text) is str for text in (*racks, *settings, *settings.values())):
            raise ValueError("its racks and settings are no texts")
    except (ValueError, KeyError, TypeError) as error:
        raise LocalClusterError(
            f"{path} cannot be read: {error}",
            hint="remove this file: the next start chooses new ports, and needs --rack and --set again",
        ) from None
    return found


def write_local_cluster(data_dir: Path, cluster: LocalCluster) -> None:
    content = {
        "version": _VERSION if cluster.has_zookeeper else _VERSION_WITHOUT_ZOOKEEPER,
        "zookeeper_port": cluster.zookeeper_port,
        "ports": list(cluster.ports),
        "racks": list(cluster.racks),
        "settings": dict(cluster.settings),
        "secure": cluster.is_secure,
    }
    (data_dir / _FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
