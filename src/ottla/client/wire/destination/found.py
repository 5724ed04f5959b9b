"""The rule of `destination` with this process's environment, the user's profiles and this directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.client.wire.destination.destination import Destination, Given, NamedCluster, choose_destination
from ottla.client.wire.destination.local_cluster import (
    CLIENT_PROPERTIES,
    DEFAULT_DATA_DIR,
    SECURITY_FOLDER,
    LocalClusterError,
    read_local_cluster,
)
from ottla.client.wire.destination.profiles import ProfileFolder, profiles_folder
from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties
from ottla.client.wire.security.settings import ClientSecurity


class KnownFiles:
    """The clusters that files name: the user's profiles, and the cluster in `directory`."""

    def __init__(self, profiles: ProfileFolder, directory: Path) -> None:
        self._profiles: Final = profiles
        self._directory: Final = directory

    def profile(self, name: str) -> NamedCluster:
        found = self._profiles.read(name)
        return NamedCluster(found.bootstrap, found.path)

    def profile_in_use(self) -> str | None:
        return self._profiles.in_use()

    def of_directory(self) -> NamedCluster | None:
        """Only a cluster of this user, as the credentials of the environment are sent to it."""
        data_dir = self._directory / DEFAULT_DATA_DIR
        found = read_local_cluster(data_dir)
        if found is None:
            return None
        owner = data_dir.stat().st_uid
        if os.name == "posix" and owner not in (0, os.geteuid()):
            raise LocalClusterError(
                f"./{DEFAULT_DATA_DIR} belongs to another user (uid {owner})",
                hint="name the cluster, if it is the one: --bootstrap-server " + found.bootstrap,
            )
        security = data_dir.absolute() / SECURITY_FOLDER / CLIENT_PROPERTIES
        return NamedCluster(found.bootstrap, security if found.is_secure else None)


def find_destination(given: Given, environment: Mapping[str, str] = os.environ) -> Destination:
    """Raises OttlaError for a profile or a cluster's directory that cannot be used."""
    known = KnownFiles(ProfileFolder(profiles_folder(environment)), Path())
    return choose_destination(given, environment, known)


def security_of(destination: Destination, environment: Mapping[str, str] = os.environ) -> ClientSecurity:
    """That of its file, completed by OTTLA_... variables.  Raises ConfigError."""
    path = destination.client_properties
    return security_of_properties({} if path is None else read_client_properties(path), environment)
