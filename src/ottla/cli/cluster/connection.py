"""How verbs about a cluster reach its brokers and its ZooKeeper."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.client_flags import command_config_path, given_security

if TYPE_CHECKING:
    import ssl

    from ottla.client.wire.cluster import Cluster
    from ottla.coordination.zookeeper.security import ZooKeeperSecurity

CLIENT_ID: Final = "ottla-cluster"
CONNECT_SETTING: Final = "zookeeper.connect"


def registered_brokers(zookeeper: str, within_ms: int) -> str:
    """The addresses of the brokers that are registered.  Nothing is made by looking, as a session makes its chroot.

    Raises `OttlaError`.
    """
    from ottla.client.membership.tree.brokers import brokers_of_tree
    from ottla.coordination.zookeeper.access import ZooKeeperRefused

    try:
        found = brokers_of_tree(
            zookeeper,
            security=given_zookeeper_security(),
            timeout_ms=within_ms,
            protocol=given_security().protocol,
        )
    except ZooKeeperRefused as error:
        error.hint = "give the brokers' zookeeper.digest as OTTLA_ZOOKEEPER_DIGEST, or in --command-config"
        raise
    return ",".join(found)


def given_zookeeper_security() -> ZooKeeperSecurity:
    """Of the file of --command-config, else of variables as brokers have them; a command line is visible.

    Raises `ConfigError`.
    """
    from ottla.client.wire.security.setting_names import read_client_properties
    from ottla.coordination.zookeeper.security import client_security
    from ottla.model.setting_sources import from_environment
    from ottla.model.zookeeper_settings import ZOOKEEPER_CLIENT_SETTINGS

    names = {setting.name for setting in ZOOKEEPER_CLIENT_SETTINGS}
    path = command_config_path()
    of_file = {} if path is None else read_client_properties(Path(path))
    found = {name: text for name, text in of_file.items() if name in names}
    for raw in from_environment(os.environ)[0]:
        if raw.name in names:
            found.setdefault(raw.name, raw.text)
    return client_security(found)


def given_zookeeper_tls() -> ssl.SSLContext | None:
    """The TLS of these, for questions to a server without a session."""
    tls = given_zookeeper_security().tls
    return None if tls is None else tls.context()


def zookeeper_of(cluster: Cluster, node_ids: Iterable[int]) -> str | None:
    """The brokers' own setting; None for a single broker, which needs no ZooKeeper."""
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.configs import ConfigResource, ResourceType
    from ottla.client.wire.errors import ClientError

    admin = Admin(cluster)
    for node_id in node_ids:
        try:
            settings = admin.describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)), [CONNECT_SETTING])
        except ClientError:
            continue
        found = settings.get(CONNECT_SETTING)
        return None if found is None else found.value
    return None
