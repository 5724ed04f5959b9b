"""Profiles: named clusters of one user, each a `client.properties` file that only the user can read.

They are in `$XDG_CONFIG_HOME/ottla/profiles`, else `~/.config/ottla/profiles`: NAME.properties, and `in-use` with the
name of the one in use.  Kafka's tools read the same files, as their `--command-config`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.client.wire.security.setting_names import read_client_properties
from ottla.model.errors import OttlaError
from ottla.model.nearest import nearest_name
from ottla.model.properties import property_line

BOOTSTRAP: Final = "bootstrap.servers"
_SUFFIX: Final = ".properties"
_IN_USE: Final = "in-use"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_SECRET: Final = re.compile(r".*(?:password|secret|digest|jaas\.config|key\.pem|keystore\.key)")
_PATH: Final = re.compile(r".*\.(?:location|file)")
_OWNER_ONLY: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class ProfileError(OttlaError):
    """A profile that is not there, or that cannot be used."""


class Profile(NamedTuple):
    name: str
    path: Path
    properties: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        return self.properties[BOOTSTRAP]


def profiles_folder(environment: Mapping[str, str]) -> Path:
    """As the XDG base directory specification says; a relative XDG_CONFIG_HOME does not count."""
    given = environment.get("XDG_CONFIG_HOME", "")
    home = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".config"
    return home / "ottla" / "profiles"


def is_secret(name: str) -> bool:
    """Whether the value of this setting is never an argument, and never shown."""
    return _SECRET.fullmatch(name) is not None


def with_absolute_paths(properties: Mapping[str, str], directory: Path) -> dict[str, str]:
    """A profile is used in any directory: its files are named from the root."""
    return {
        name: str(directory / Path(text).expanduser()) if text and _PATH.fullmatch(name) else text
        for name, text in properties.items()
    }


class ProfileFolder:
    """The profiles of a folder, which the first one creates.  Raises ProfileError, and ConfigError for a bad file."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder

    def names(self) -> list[str]:
        try:
            entries = os.listdir(self._folder)
        except OSError:
            return []
        names = (entry.removesuffix(_SUFFIX) for entry in entries if entry.endswith(_SUFFIX))
        return sorted(name for name in names if _NAME.fullmatch(name))

    def path_of(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            hint = "1 to 64 letters, digits, '.', '_' and '-', of which the first is a letter, a digit or '_'"
            raise ProfileError(f"{name!r} is not a profile's name", hint=hint)
        return self._folder / (name + _SUFFIX)

    def read(self, name: str) -> Profile:
        path = self.path_of(name)
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            nearest = nearest_name(name, self.names())
            hint = f"did you mean {nearest}?" if nearest else "`ottla profile list` shows those that exist"
            raise ProfileError(f"there is no profile {name}", hint=hint) from None
        except OSError as error:
            raise ProfileError(f"the profile {name} cannot be read: {error.strerror}", hint=f"see {path}") from error
        if os.name == "posix" and mode & _OTHERS:
            raise ProfileError(
                f"the profile {name} is open to other users: {path} has the mode {stat.S_IMODE(mode):04o}",
                hint=f"chmod 600 {path}; and replace a password that it holds",
            )
        properties = read_client_properties(path)
        if not properties.get(BOOTSTRAP):
            raise ProfileError(f"the profile {name} has no {BOOTSTRAP}", hint=f"add a line {BOOTSTRAP}=... to {path}")
        return Profile(name, path, properties)

    def in_use(self) -> str | None:
        try:
            text = (self._folder / _IN_USE).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return text.strip() or None

    def use(self, name: str | None) -> None:
        """`None`: none is in use."""
        if name is None:
            with suppress(FileNotFoundError):
                (self._folder / _IN_USE).unlink()
            return
        self.read(name)
        self._write(self._folder / _IN_USE, name + "\n")

    def write(self, name: str, properties: Mapping[str, str]) -> Path:
        """Create the profile, or replace it."""
        path = self.path_of(name)
        self._write(path, "".join(property_line(*each) for each in properties.items()))
        return path

    def delete(self, name: str) -> None:
        """A profile in use is in use no more."""
        path = self.path_of(name)
        try:
            path.unlink()
        except FileNotFoundError:
            self.read(name)  # which raises, with the nearest name
        if self.in_use() == name:
            self.use(None)

    def _write(self, path: Path, text: str) -> None:
        """By a rename: a reader sees the old file or the new one."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ProfileError(
                f"the folder of profiles {self._folder} cannot be made: {error.strerror}",
                hint="set XDG_CONFIG_HOME to a folder where this user may write",
            ) from error
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
